"""How Hydra finds the folder of a run: the functions that `conf/config.yaml` calls, which also check the settings."""

from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from experiments.errors import ConfigurationError
from experiments.identity import run_id
from experiments.settings import checked_settings


def resolved(config: DictConfig) -> dict[str, Any]:
    """The settings as plain values, without Hydra's own settings.

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


def _checked(*, _root_: DictConfig) -> str:
    """An empty text at the start of a folder's path. Wrong settings raise an error here, before the folder exists."""
    checked_settings(resolved(_root_))
    return ""


def _folder_in_sweep(*, _root_: DictConfig) -> str:
    try:
        settings = checked_settings(resolved(_root_))
    except (ConfigurationError, OmegaConfBaseException):
        return ".refused"  # the job itself reports the reason, and the other jobs continue
    return f"{settings.activation.name}-{run_id(_root_)}/seed-{settings.seed}"


def register_resolvers() -> None:
    """Register with OmegaConf the functions that `conf/config.yaml` calls. Hydra passes them to launched processes."""
    OmegaConf.register_new_resolver("run_id", lambda *, _root_: run_id(_root_), replace=True)
    OmegaConf.register_new_resolver("checked", _checked, replace=True)
    OmegaConf.register_new_resolver("folder_in_sweep", _folder_in_sweep, replace=True)
    OmegaConf.register_new_resolver(
        "from_here", lambda path, *, _root_: str(Path(_root_.hydra.runtime.cwd) / path), replace=True
    )
