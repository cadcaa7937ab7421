"""What `make help` prints, and what `make imagenet` and `make tiny_imagenet` start."""

import re
import subprocess

from experiments.identity import ROOT


def make(*arguments):
    return subprocess.run(["make", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_help_lists_every_command_once_in_80_columns():
    lines = make("help").splitlines()
    commands = [name for line in lines if line.startswith("  ") for name in line[:22].split()]
    phony = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert sorted(commands) == sorted([*" ".join(phony).split(), "study-NAME"])
    assert max(map(len, lines)) <= 80


def test_tiny_imagenet_trains_with_the_seeds_that_are_given():
    for given, expected in (("SEEDS=7,8", {"7,8"}), ("DATA=data", {"21", "21,42,63"})):
        assert {*re.findall(r" seed=(\S+)", make("-n", "tiny_imagenet", given))} == expected


def test_imagenet_trains_both_sets_with_every_seed():
    runs = [line for line in make("-n", "imagenet", "SEEDS=1,2", "GPUS=8").splitlines() if "torchrun" in line]
    assert [re.findall(r"(?:experiment|seed|devices)=(\S+)", run) for run in runs] == [
        [name, seed, "8"] for name in ("imagenet_lt", "imagenet_balanced") for seed in "12"
    ]
