"""The settings that a benchmark measures: an experiment's settings, as run.py composes them, on random data."""

from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from experiments.building import build_data, build_module
from experiments.data.base import SplitDataModule
from experiments.identity import ROOT
from experiments.modules.base import OutputModule
from experiments.settings import RunSettings, checked_settings

BATCHES = ("seed", "batch_size", "evaluation_batch_size", "num_workers", "sampler", "train_metrics")


def settings_of(experiment: str, *overrides: str) -> RunSettings:
    """The settings of an experiment with the overrides of a command line."""
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        config = compose("config", overrides=[f"experiment={experiment}", "logger=csv", *overrides])
    plain = OmegaConf.to_container(
        OmegaConf.masked_copy(config, [key for key in config if key != "hydra"]), resolve=True
    )
    return checked_settings(plain)


def on_random_data(settings: RunSettings, module: str, **data: Any) -> RunSettings:
    """The same settings with a data module of `benchmarks.synthetic` in place of the experiment's."""
    batches = {key: settings.data[key] for key in BATCHES if key in settings.data}
    return settings.model_copy(update={"data": {"_target_": f"benchmarks.synthetic.{module}", **batches, **data}})


def build_run(settings: RunSettings) -> tuple[OutputModule, SplitDataModule]:
    """The module and the data that the settings name."""
    data = build_data(settings, print)
    return build_module(settings, data), data
