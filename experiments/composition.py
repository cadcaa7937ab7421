"""An experiment's settings as run.py composes them."""

import functools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import signature
from traceback import walk_tb
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from experiments.errors import ConfigurationError
from experiments.identity import DECISIVE, ROOT
from experiments.messages import message_of
from experiments.record import Record
from experiments.settings import RunSettings, checked_settings, get_class_or_function


@contextmanager
def composing() -> Iterator[None]:
    """Turn any error outside of runs into a ConfigurationError: it is of the command line or a file of settings."""
    if any(argument.partition("=")[0] == "--experiment" for argument in sys.argv[1:]):
        raise ConfigurationError("--experiment: a setting has no dashes; give experiment=NAME")  # or Hydra reruns a job
    try:
        yield
    except Exception as error:
        if getattr(error, "is_of_run", False) or message_of(error) is not None:
            raise
        raise ConfigurationError(f"{_read_last(error)}: {str(error) or type(error).__name__}") from error


def _read_last(error: Exception) -> str:
    """The file of settings or the setting that Hydra was reading, which its error may not name; or the command line."""
    for frame, _ in reversed([*walk_tb(error.__traceback__)]):  # by the names of variables in Hydra 1.3
        override = getattr(frame.f_locals.get("override"), "input_line", None)
        if place := frame.f_locals.get("full_path") or override:
            return str(place)
    return " ".join(sys.argv[1:])


@functools.cache  # composing takes a tenth of a second
def composed(*overrides: str) -> DictConfig:
    """The configuration that run.py composes, before it is checked; not to be changed."""
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        return compose("config", overrides=list(overrides))


def resolved(config: DictConfig) -> dict[str, Any]:
    """The settings of a composed configuration as plain values, without Hydra's own settings.

    Raises:
        ConfigurationError: a setting has no value.
        OmegaConfBaseException: a setting refers to a missing setting.
    """
    own = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    for key in sorted(OmegaConf.missing_keys(own)):
        raise ConfigurationError(f"{key} is missing; give {key}=VALUE")
    values = OmegaConf.to_container(own, resolve=True)
    assert isinstance(values, dict)
    return {str(key): value for key, value in values.items()}


def settings_of(*overrides: str) -> RunSettings:
    """The settings of a run from its overrides of run.py."""
    return checked_settings(resolved(composed(*overrides)))


def settings_of_record(record: Record, given: dict[str, str]) -> RunSettings:
    """The settings of a record.

    Those that do not decide the result come from `conf/`, or from `given`, by dotted names.

    Raises:
        ConfigurationError: a given setting decides the result, or a setting of the record is no longer allowed.
    """
    allowed = sorted(set(RunSettings.model_fields) - {*DECISIVE, "seed"})
    for key, value in given.items():
        if key.partition(".")[0] not in allowed:
            raise ConfigurationError(f"{key}={value} is not allowed here; you can give {', '.join(allowed)}")
    base = resolved(composed(*(f"{key}={value}" for key, value in given.items())))
    decided = {key: record.config[key] for key in DECISIVE}
    data, module = decided["data"], decided["module"]
    decided["module"] = {key: module[key] for key in module if key != "vocab_parallel"}  # gone; divided the work alone
    if "folder" in signature(get_class_or_function(data, "data")).parameters:  # which kept records leave out
        place = base["paths"]["data"] if "paths.data" in given else data.get("folder")
        decided["data"] = data | {"folder": place}
    return checked_settings(base | decided | {"seed": record.seed})
