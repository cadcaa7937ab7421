"""The settings that a benchmark measures: an experiment's settings, as run.py composes them, on random data."""

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from experiments.building import build_data, build_module
from experiments.data.base import SplitDataModule
from experiments.identity import ROOT
from experiments.modules.base import OutputModule
from experiments.settings import RunSettings, checked_settings

SHAPES = {  # of an experiment's inputs, as `benchmarks.synthetic` takes them
    "airline": {"shape": [20], "classes": 3, "vocabulary": 4498},
    "cifar100": {"shape": [3, 32, 32], "classes": 100},
    "imagenet_balanced": {"shape": [3, 224, 224], "classes": 1000},
    "multi30k": {"vocabulary": 8000, "source": 15, "target": 14},
}

BATCHES = ("seed", "batch_size", "evaluation_batch_size", "num_workers", "sampler", "train_metrics")


def settings_of(experiment: str, *overrides: str) -> RunSettings:
    """The settings of an experiment with the overrides of a command line."""
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        config = compose("config", overrides=[f"experiment={experiment}", "logger=csv", *overrides])
    plain = OmegaConf.to_container(
        OmegaConf.masked_copy(config, [key for key in config if key != "hydra"]), resolve=True
    )
    return checked_settings(plain)


def on_random_data(settings: RunSettings, experiment: str, steps: int) -> RunSettings:
    """The same settings with random data of the experiment's shapes, and so many steps in an epoch of training."""
    data = {key: settings.data[key] for key in BATCHES if key in settings.data} | SHAPES[experiment]
    if "shape" in data:
        data |= {"_target_": "benchmarks.synthetic.RandomExamples", "examples": steps * settings.data["batch_size"]}
    else:
        data |= {"_target_": "benchmarks.synthetic.RandomSentences", "count": 300}
    return settings.model_copy(update={"data": data})


def build_run(settings: RunSettings) -> tuple[OutputModule, SplitDataModule]:
    """The module and the data that the settings name."""
    data = build_data(settings, print)
    return build_module(settings, data), data
