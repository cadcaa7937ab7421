"""The settings a benchmark measures: those of an experiment, as run.py composes them."""

from hydra import compose, initialize_config_dir

from experiments.settings import RunSettings, register, typed
from experiments.identity import ROOT


def settings_of(experiment: str, *overrides: str) -> RunSettings:
    """The settings of an experiment with the overrides of a command line."""
    register()
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        return typed(compose("config", overrides=[f"experiment={experiment}", *overrides]))
