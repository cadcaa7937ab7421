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

    A run whose name is no experiment in conf/ is compared with the default experiment.
    """
    config = record.config
    file, own = _named("activation", config["activation"]["name"])
    known = (_CONF / "experiment" / f"{record.experiment}.yaml").is_file()
    choices = [f"experiment={record.experiment}"] if known else []
    attention = config["model"].get("attention")
    if isinstance(attention, Mapping) and (found := _named("attention", attention["name"])[0]) != "custom":
        choices.append(f"attention={found}")
    base = {key: value for key, value in _composed(*choices).items() if not key.startswith("activation.")}
    base |= dict(_flat({"activation": dict.fromkeys(config["activation"]) | {"parameters": {}} | own}))
    wanted = _decisive(config)
    # A record of earlier code lacks the number of examples of its data set.
    same_data = config["data"].get("_target_") == base["data._target_"]
    in_base = (key for key in base if not (same_data and key.startswith("data.expected_examples")))
    lacking = dict.fromkeys(filter(None, (_lacking(key, wanted) for key in in_base)))
    # Hydra removes a 0, but not a null. A removal comes first, in case a setting is added in its place.
    no_nulls = [f"{key}=0" for key in lacking if base.get(key, 0) is None]
    removed = [*no_nulls, *(f"~{key}" for key in lacking)]
    changes = [
        f"{'' if key in base else '++'}{key}={_text(value)}"
        for key, value in wanted.items()
        if key not in base or base[key] != value
    ]
    folder = config["data"].get("folder")
    place = [f"paths.data={folder}"] if folder else []
    words = ["python", "run.py", *choices, f"activation={file}", *removed, *changes, f"seed={record.seed}", *place]
    return shlex.join(words)


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
    """The settings that decide the result, and the number of examples that a run checks, by their dotted names."""
    settings = dict(_flat({key: config[key] for key in DECISIVE if key in config}))
    left_out = tuple(
        f"{group}.{key}." for group, keys in INDECISIVE.items() for key in keys if key != "expected_examples"
    )
    return {key: value for key, value in settings.items() if not f"{key}.".startswith(left_out)}


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _lacking(key: str, wanted: Mapping[str, Any]) -> str | None:
    """The setting, or the group around it, of which a run has nothing; None if it has the setting, or another group."""
    if any(key.startswith(f"{own}.") for own in wanted):
        return None
    parts = key.split(".")
    groups = (".".join(parts[:length]) for length in range(1, len(parts) + 1))
    return next((group for group in groups if not any(f"{own}.".startswith(f"{group}.") for own in wanted)), None)


def _text(value: Any) -> str:
    """A value in the syntax of Hydra's command line."""
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{key}:{_text(inner)}' for key, inner in value.items())}}}"
    if isinstance(value, list):
        return f"[{','.join(map(_text, value))}]"
    plain = isinstance(value, str) and re.fullmatch(r"[\w.]+", value) and yaml.safe_load(value) == value
    return value if plain else json.dumps(value, ensure_ascii=False)
