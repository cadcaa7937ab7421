"""The command that repeats a run, from the settings in its record."""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import yaml

from experiments.identity import DECISIVE, INDECISIVE, ROOT
from experiments.record import Record

_CONF = ROOT / "conf"


def repeating_command(record: Record) -> str:
    """`python run.py` with the settings in which a run differs from its experiment, and its seed.

    For an experiment that is not in conf/, FOLDER in the command stands for the folder that holds it.
    """
    config = record.config
    file, own = _named("activation", config["activation"]["name"])
    choices = [f"experiment={record.experiment}", f"activation={file}"]
    attention = config["model"].get("attention")
    if isinstance(attention, Mapping):
        choices.append(f"attention={_named('attention', attention['name'])[0]}")
    known = (_CONF / "experiment" / f"{record.experiment}.yaml").is_file()
    base = _composed(choices[0], *choices[2:]) if known else {}
    base = base | dict(_flat({"activation": dict.fromkeys(config["activation"]) | {"parameters": {}} | own}))
    wanted = _decisive(config if known else {"activation": config["activation"]})
    changes = [
        f"{'' if key in base else '+'}{key}={_text(value)}"
        for key, value in wanted.items()
        if key not in base or base[key] != value
    ]
    folder = config["data"].get("folder")
    place = [f"paths.data={folder}"] if folder else []
    found_in = [] if known else ["--config-dir", "FOLDER"]
    return shlex.join(["python", "run.py", *found_in, *choices, *changes, f"seed={record.seed}", *place])


@cache
def _composed(*choices: str) -> dict[str, Any]:
    """The decisive settings of an experiment, by their dotted names."""
    from experiments.composition import settings_of  # imports Hydra

    return _decisive(settings_of(*choices).model_dump())


@cache
def _named(group: str, name: str) -> tuple[str, dict[str, Any]]:
    """The file of a group whose settings have this name, and these settings; "custom" for a map from elsewhere."""
    for file in _CONF.glob(f"{group}/*.yaml"):
        if (settings := yaml.safe_load(file.read_text("utf-8")))["name"] == name:
            return file.stem, settings
    return "custom", {}


def _decisive(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that decide the result, by their dotted names."""
    settings = dict(_flat({key: config[key] for key in DECISIVE if key in config}))
    left_out = tuple(f"{group}.{key}." for group, keys in INDECISIVE.items() for key in keys)
    return {key: value for key, value in settings.items() if not f"{key}.".startswith(left_out)}


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _text(value: Any) -> str:
    """A value in the syntax of Hydra's command line."""
    return value if isinstance(value, str) and re.fullmatch(r"[\w.]+", value) else json.dumps(value)
