"""An experiment's settings as run.py composes them."""

import functools
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from experiments.errors import ConfigurationError
from experiments.identity import ROOT
from experiments.settings import RunSettings, checked_settings


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
