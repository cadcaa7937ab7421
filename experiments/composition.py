"""An experiment's settings as run.py composes them, for code that is not started by run.py."""

import functools

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from experiments.identity import ROOT
from experiments.settings import RunSettings, checked_settings


@functools.cache  # composing takes a tenth of a second
def composed(*overrides: str) -> DictConfig:
    """The configuration that run.py composes, before it is checked; not to be changed."""
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        return compose("config", overrides=list(overrides))


def settings_of(*overrides: str) -> RunSettings:
    """The settings of a run from its overrides of run.py."""
    return checked_settings(OmegaConf.to_container(composed(*overrides), resolve=True))
