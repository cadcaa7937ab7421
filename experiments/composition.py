"""An experiment's settings as run.py composes them, for code that is not started by run.py."""

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from experiments.identity import ROOT
from experiments.settings import RunSettings, checked_settings


def settings_of(experiment: str, *overrides: str) -> RunSettings:
    """The settings of an experiment with the overrides of a command line."""
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        config = compose("config", overrides=[f"experiment={experiment}", "logger=csv", *overrides])
    return checked_settings(OmegaConf.to_container(config, resolve=True))
