"""The command that repeats a run, from the settings in its record."""

import re
import shlex
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import yaml

from experiments.identity import DECISIVE, INDECISIVE, ROOT
from experiments.record import Record, settings_id

_CONF = ROOT / "conf"
# Settings of records that name no module, with today's names. Settings that are missing here decided nothing or are
# today's default.
_PRESENT_NAMES = {
    "trainer.epochs": "trainer.max_epochs",
    "trainer.gradient_clip": "trainer.gradient_clip_val",
    "trainer.batch_size": "data.batch_size",
    "trainer.sampler": "data.sampler",
    "trainer.train_metrics": "data.train_metrics",
    "data.augmentation": "data.augmentation",
    "data.imbalance": "data.imbalance",
    "model.dimension": "model.dimension",
    "optimizer.learning_rate": "optimizer.learning_rate",
    "optimizer.entropy_learning_rate": "optimizer.entropy_learning_rate",
}
OLDER = "Recorded when some settings had other names; the command gives them by their present ones."
CHANGED = "Some defaults have changed since, so the repeated run is kept in a folder of another name."
OWN = "The experiment is not in conf/: add --config-dir FOLDER, with the folder that holds it."
Settings = dict[str, Any]


class Repeats:
    """Finds commands. Hydra composes the settings of each experiment only once."""

    def __init__(self) -> None:
        self._composed: dict[tuple[str, ...], Settings] = {}

    def command(self, record: Record) -> tuple[str, str]:
        """The command that repeats a run, and a note if the command cannot repeat it exactly.

        Args:
            record: the run's record.

        Returns:
            The command, `python run.py` with the settings in which the run differs from its experiment; and the
            note, empty if the command leads to the same settings and so to the same `run_id`.
        """
        config = record.config
        choices = [*_choices(config)]
        start = ["python", "run.py", *choices]
        end = [f"seed={record.seed}", *_place_of_data(config)]
        if not (_CONF / "experiment" / f"{record.experiment}.yaml").is_file():
            own = {"activation": _defaults(config["activation"])}
            return shlex.join([*start, *_changes(own, _decisive({"activation": config["activation"]})), *end]), OWN
        base = self._base(config, choices)
        if "module" not in config:
            return shlex.join([*start, *_changes(base, _by_present_names(config), strict=False), *end]), OLDER
        command = shlex.join([*start, *_changes(base, _decisive(config)), *end])
        same = settings_id(_merged(base, config)) == record.run_id
        return command, "" if same else CHANGED

    def _base(self, config: Mapping[str, Any], choices: list[str]) -> Settings:
        """The settings before any change: the experiment's settings, with the chosen activation and attention."""
        composed = tuple(choice for choice in choices if not choice.startswith("activation"))
        if composed not in self._composed:
            self._composed[composed] = _compose(composed)
        return self._composed[composed] | {"activation": _defaults(config["activation"])}


def _compose(choices: tuple[str, ...]) -> Settings:
    from hydra import compose, initialize_config_dir

    from experiments.resolvers import register_resolvers, resolved

    register_resolvers()
    with initialize_config_dir(str(_CONF), version_base="1.3"):
        return resolved(compose("config", overrides=[*choices]))


def _choices(config: Mapping[str, Any]) -> Iterator[str]:
    """The choices of whole groups: experiment, activation, attention."""
    yield f"experiment={config['name']}"
    name = config["activation"]["name"]
    yield f"activation={name if name in _activations() else 'custom'}"
    attention = (config.get("model") or {}).get("attention")
    if isinstance(attention, Mapping):
        files = {yaml.safe_load(file.read_text("utf-8"))["name"]: file.stem for file in _CONF.glob("attention/*.yaml")}
        if attention.get("name") in files:
            yield f"attention={files[attention['name']]}"


def _defaults(activation: Mapping[str, Any]) -> Settings:
    """The default settings of an activation."""
    unset = {key: {} if key == "parameters" else None for key in activation}
    return unset | _activations().get(activation["name"], {})


@cache
def _activations() -> dict[str, Settings]:
    read = {file.stem: yaml.safe_load(file.read_text("utf-8")) for file in _CONF.glob("activation/*.yaml")}
    return {name: settings for name, settings in read.items() if settings["name"] == name}


def _place_of_data(config: Mapping[str, Any]) -> list[str]:
    folder = config["data"].get("folder") or (config.get("paths") or {}).get("data")
    return [f"paths.data={folder}"] if folder else []


def _decisive(config: Mapping[str, Any]) -> Settings:
    """The settings that decide the result, by their dotted names."""
    chosen = {
        key: {name: value for name, value in config[key].items() if name not in INDECISIVE.get(key, ())}
        if isinstance(config[key], Mapping)
        else config[key]
        for key in DECISIVE
        if key in config
    }
    return dict(_flat(chosen))


def _by_present_names(config: Mapping[str, Any]) -> Settings:
    flat = dict(_flat(config))
    activation = {key: value for key, value in flat.items() if key.startswith(("activation.", "model.attention."))}
    return activation | {new: flat[old] for old, new in _PRESENT_NAMES.items() if old in flat}


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _changes(base: Mapping[str, Any], wanted: Settings, *, strict: bool = True) -> Iterator[str]:
    """An override for each setting that differs; without `strict`, only for settings that the base has."""
    known = dict(_flat(base))
    for key, value in wanted.items():
        if key not in known:
            if strict and value is not None:
                yield f"+{key}={_text(value)}"
        elif known[key] != value:
            yield f"{key}={_text(value)}"


def _text(value: Any) -> str:
    """A value in the syntax of Hydra's command line."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{','.join(map(_text, value))}]"
    if isinstance(value, str) and not re.fullmatch(r"[\w./:%+-]+( [\w./:%+-]+)*", value):
        return "'" + value.replace("'", "\\'") + "'"
    return str(value)


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> Settings:
    both = dict(base)
    for key, value in changes.items():
        inner = base.get(key)
        both[key] = _merged(inner, value) if isinstance(inner, Mapping) and isinstance(value, Mapping) else value
    return both
