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

    An experiment that is not in conf/ needs --config-dir FOLDER too, with the folder that holds it.
    """
    config = record.config
    attention = config["model"].get("attention")
    choices = [
        f"experiment={record.experiment}",
        f"activation={_file('activation', config['activation']['name'])}",
        *([f"attention={_file('attention', attention['name'])}"] if isinstance(attention, Mapping) else []),
    ]
    known = (_CONF / "experiment" / f"{record.experiment}.yaml").is_file()
    base = _composed(*choices) if known else {}
    wanted = _decisive(config if known else {"activation": config["activation"]})
    changes = [
        f"{'' if key in base or not known else '+'}{key}={_text(value)}"
        for key, value in wanted.items()
        if (base[key] != value if key in base else value not in (None, {}))
    ]
    folder = config["data"].get("folder")
    place = [f"paths.data={folder}"] if folder else []
    return shlex.join(["python", "run.py", *choices, *changes, f"seed={record.seed}", *place])


@cache
def _composed(*choices: str) -> dict[str, Any]:
    """The decisive settings of these choices, by their dotted names."""
    from hydra import compose, initialize_config_dir

    from experiments.resolvers import register_resolvers, resolved

    register_resolvers()
    with initialize_config_dir(str(_CONF), version_base="1.3"):
        return _decisive(resolved(compose("config", overrides=[*choices])))


@cache
def _file(group: str, name: str) -> str:
    """The file of a group whose settings have this name; "custom" for an activation from elsewhere."""
    files = {yaml.safe_load(file.read_text("utf-8"))["name"]: file.stem for file in _CONF.glob(f"{group}/*.yaml")}
    return files.get(name, "custom")


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
