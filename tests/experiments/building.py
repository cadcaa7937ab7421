"""Settings as `conf/` composes them, and small modules, data and Trainers, for the tests of the suite."""

from pathlib import Path
from typing import Any, ClassVar

import lightning.pytorch as L
from lightning.pytorch.loggers.logger import DummyLogger

import sharmix
from experiments.data.copying import CopyDataModule
from experiments.data.digits import DigitsDataModule
from experiments.modules.classifier import Classifier
from experiments.modules.optimizer import AdamSettings
from experiments.modules.translator import BeamSettings, Translator
from experiments.networks.perceptron import Perceptron
from experiments.networks.transformer import Transformer
from experiments.settings import ActivationSettings

CONF = Path(__file__).resolve().parents[2] / "conf"
RATES = {"learning_rate": 1e-3, "entropy_learning_rate": 1e-3}
EXPERIMENTS = sorted(file.stem for file in (CONF / "experiment").glob("*.yaml"))


class Kept(DummyLogger):
    """Keeps what it is given, by name and step."""

    values: ClassVar[dict[tuple[str, int], float]] = {}
    statuses: ClassVar[list[str]] = []

    def __init__(self, folder: str) -> None:
        super().__init__()

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        for name, value in metrics.items():
            assert self.values.setdefault((name, step), value) == value

    def finalize(self, status: str) -> None:
        self.statuses.append(status)


def stock_trainer(**options: Any) -> L.Trainer:
    """Lightning's Trainer as anyone makes it, on the processor and quiet."""
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    return L.Trainer(**{"accelerator": "cpu", "max_epochs": 2, "enable_checkpointing": False} | quiet | options)


def digits(**options: Any) -> DigitsDataModule:
    return DigitsDataModule(
        **{"seed": 0, "batch_size": 64, "evaluation_batch_size": 512, "test_fraction": 0.2, "split_seed": 21} | options
    )


def classifier(activation: str = "sharmix_learned", **options: Any) -> Classifier:
    L.seed_everything(0, verbose=False)
    return Classifier(
        Perceptron(features=64, hidden_units=16, num_classes=10),
        sharmix.build_activation(activation),
        AdamSettings(**RATES),
        **{"num_classes": 10} | options,
    )


def copies(**options: Any) -> CopyDataModule:
    sizes = {"words": 5, "shortest": 2, "longest": 5, "train_size": 100, "evaluation_size": 10}
    data = CopyDataModule(**{"seed": 0, "batch_size": 100, "evaluation_batch_size": 5} | sizes | options)
    data.setup()
    return data


def translator(
    data: CopyDataModule, activation: str = "softmax", *, optimizer: dict[str, Any] | None = None, **options: Any
) -> Translator:
    L.seed_everything(0, verbose=False)
    network = Transformer(
        **data.network_arguments(),
        dimension=16,
        feedforward=32,
        heads=2,
        encoder_layers=1,
        decoder_layers=1,
        attention=ActivationSettings(name="softmax"),
    )
    return Translator(
        network,
        sharmix.build_activation(activation),
        AdamSettings(**RATES | (optimizer or {})),
        **{"data": data.data, "beam": BeamSettings(size=2, limit_ratio=1.5, limit_extra=5)} | options,
    )
