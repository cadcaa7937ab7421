"""An experiment's settings as run.py composes them, for code that is not started by run.py."""

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from experiments.identity import ROOT
from experiments.settings import RunSettings, checked_settings


def settings_of(*overrides: str) -> RunSettings:
    """The settings of a run from its overrides of run.py."""
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        config = compose("config", overrides=list(overrides))
    return checked_settings(OmegaConf.to_container(config, resolve=True))
