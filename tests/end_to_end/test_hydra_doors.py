"""Hydra's own command line: what it prints, and that it prints it quickly, without torch."""

import json
import subprocess
import sys

import pytest
import yaml

from experiments.identity import ROOT

pytestmark = pytest.mark.medium  # the one process

# Each command line runs like a program of its own, one after the other in one process.
PROGRAM = """
import contextlib, io, json, os, runpy, sys, time
sys.path.insert(0, os.getcwd())
printed = []
for arguments, line in json.load(sys.stdin):
    sys.argv = ["run.py", *arguments]
    os.environ["COMP_LINE"] = line
    out, error, began, status = io.StringIO(), io.StringIO(), time.process_time(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        try:
            runpy.run_path("run.py", run_name="__main__")
        except SystemExit as stopped:
            status = stopped.code or 0
    seconds = time.process_time() - began
    slow = [name for name in ("torch", "lightning", "pandas", "sharmix") if name in sys.modules]
    printed.append([status, out.getvalue(), error.getvalue(), seconds, slow])
json.dump(printed, sys.stdout)
"""
COMMANDS = {
    "cfg": ["experiment=cifar100", "activation=sharmix_learned", "--cfg", "job"],
    "install": ["-sc", "install=bash"],
    "help": ["--help"],
}
EXPERIMENTS = sorted(file.stem for file in (ROOT / "conf" / "experiment").iterdir())
COMPLETED = {
    "experiment=": [f"experiment={name}" for name in EXPERIMENTS],
    "activation=sharmix": ["activation=sharmix_fixed", "activation=sharmix_learned"],
    "experiment=digits trainer.max_e": ["trainer.max_epochs="],
    "experiment=multi30k attention=": ["attention=entmax", "attention=sharmix", "attention=softmax"],
}


@pytest.fixture(scope="module")
def printed():
    """What each command prints, and each completion."""
    lines = [f"python run.py {line}" for line in COMPLETED]
    asked = [*((arguments, "") for arguments in COMMANDS.values()), *((["-sc", "query=bash"], line) for line in lines)]
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, cwd=ROOT, input=json.dumps(asked), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    for (arguments, line), (status, _, error, seconds, slow) in zip(asked, answers, strict=True):
        assert (status, error, slow) == (0, "", []), (arguments, line)
        assert seconds < 5, (arguments, line)  # of the processor; about 0.3
    names = [*COMMANDS, *COMPLETED]
    return {name: out for name, (_, out, *_) in zip(names, answers, strict=True)}


def test_the_configuration_is_printed_without_a_run(printed):
    config = yaml.safe_load(printed["cfg"])
    assert config["name"] == "cifar100"
    assert config["activation"]["name"] == "sharmix_learned"
    assert config["data"]["_target_"] == "experiments.data.cifar100.Cifar100DataModule"
    assert config["data"]["batch_size"] > 0


def test_help_lists_groups_and_settings(printed):
    listed, _, settings = printed["help"].partition("Set any of these")
    groups = {line.partition(": ")[0]: line for line in listed.splitlines()}
    for folder in sorted(path for path in (ROOT / "conf").iterdir() if path.is_dir()):
        for file in folder.glob("*.yaml"):
            assert file.stem in groups[folder.name]
    assert "max_epochs: 20" in settings


def test_the_shell_completes_groups_and_settings(printed):
    assert "hydra_bash_completion()" in printed["install"]
    for line, expected in COMPLETED.items():
        assert printed[line].split() == expected
