"""Command lines with settings drawn from the keys there are: they run, or are refused by one message at once."""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from experiments.identity import ROOT
from stress.outcome import Outcome
from stress.processes import Hang, command, last_lines, perform
from stress.runs import RUNS
from stress.trials import Wrong, repeat

WHAT = "command lines with edge values, wrong types, removed keys and interpolations"
EXPERIMENTS = ("digits", "copy")
PATHS = ("paths.outputs=outputs", "paths.data=nowhere")
LONGEST = 15  # lines of a message
VALUES = (
    *("0", "1", "-1", "2", "0.5", "1.5", "1e308", "-1e-320", "inf", "nan", "0x10", "1_0", "007", "9" * 20, "null"),
    *("true", "false", "''", "' '", "[]", "{}", "[1,2]", "[null]", "{a: 1}", "{_target_: 5}", "text", "ä😀", "'1'"),
    *("../x", "/dev/null/x", "/dev/full", "a/b", ".", "???", "$", "${seed}", "${x}", "${x", "${oc.env:NO_SUCH}"),
    *("${paths.outputs}", "${trainer}", "${run_id:}", "a b", "a,b", "'a\nb'", "'a\tb'", "x" * 300, "os.getcwd"),
)
NONSENSE = ("text", "nan", "[1,2]", "{a: 1}")  # where a number stands
BESIDES = ("~{key}", "~{key}=5", "+{key}={value}", "++{key}={value}", "+{key}.more={value}", "{key}x={value}")
_GROUPS = ("activation", "attention", "callbacks", "data", "model", "module", "optimizer", "trainer", "experiment")


def run(seconds: float, seed: int) -> Outcome:
    return repeat("settings_generation", WHAT, lambda home: SettingsGeneration(home).trial, seconds, seed)


class SettingsGeneration:
    """The trials, with the keys that each experiment has."""

    def __init__(self, home: Path) -> None:
        self.home = home
        with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
            composed = {name: compose("config", overrides=[*RUNS[name]]) for name in EXPERIMENTS}
        self.keys = {name: dict(_keys(OmegaConf.to_container(one))) for name, one in composed.items()}

    def trial(self, draw: random.Random) -> None:
        name = draw.choice(EXPERIMENTS)
        place = self.home / uuid4().hex / "a" / "b"
        drawn = [self._override(draw, name) for _ in range(draw.choice((1, 1, 1, 2, 3)))]
        arguments = (*RUNS[name], "trainer.max_epochs=1", "trainer.fast_dev_run=true", *PATHS, *drawn)
        shown = " ".join(one if len(one) < 100 else f"{one[:100]}…" for one in drawn)
        root = {path.name for path in Path("/").iterdir()}
        try:
            status, printed = perform(place, command("run.py", *arguments))
        except Hang as error:
            raise Hang(f"{name} {shown}: {error}") from error
        if status not in (0, 1):
            raise RuntimeError(f"{name} {shown}: status {status}, {last_lines(printed)!r}")
        if status and ("Traceback" in printed or not 0 < len(printed.splitlines()) <= LONGEST):
            raise RuntimeError(f"{name} {shown}: {len(printed.splitlines())} lines, {last_lines(printed)!r}")
        key, _, value = drawn[0].partition("=")
        if not status and len(drawn) == 1 and value in NONSENSE and isinstance(self.keys[name].get(key), int | float):
            raise Wrong(f"{name} {shown}: is taken")
        if status and (left := [path for path in place.parents[1].rglob("*") if path not in (place, place.parent)]):
            raise RuntimeError(f"{name} {shown}: refused, but there is {left[0]}, {last_lines(printed)!r}")
        if new := {path.name for path in Path("/").iterdir()} - root:
            raise RuntimeError(f"{name} {shown}: writes {new} to the root of the disk")
        shutil.rmtree(place.parents[1])

    def _override(self, draw: random.Random, name: str) -> str:
        key, value = draw.choice([*self.keys[name]]), draw.choice(VALUES)
        if draw.random() < 0.1:
            group = draw.choice(_GROUPS)
            options = [file.stem for file in (ROOT / "conf" / group).glob("*.yaml") if file.stem != "wandb"]
            return f"{group}={draw.choice([*options, *VALUES])}"
        if draw.random() < 0.2:
            return draw.choice(BESIDES).format(key=key, value=value)
        return f"{key}={value}"


def _keys(settings: dict[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """All keys of settings, and their values."""
    for key, value in settings.items():
        yield f"{prefix}{key}", value
        if isinstance(value, dict):
            yield from _keys(value, f"{prefix}{key}.")
