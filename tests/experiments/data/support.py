"""What the tests of the data share: the data modules with small settings, and a stand-in for the Trainer."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from experiments.data.airline import AirlineDataModule
from experiments.data.base import ClassificationDataModule, SplitDataModule
from experiments.data.cifar100 import Cifar100DataModule
from experiments.data.copying import CopyDataModule
from experiments.data.digits import DigitsDataModule
from experiments.data.examples import Batch, ClassificationData, InMemory
from experiments.data.imagenet import ImagenetDataModule
from experiments.data.long_tail import ShotRule
from experiments.data.parallel_corpus import ParallelCorpusDataModule
from experiments.data.special_tokens import BEGIN, END, PADDING
from experiments.data.tiny_imagenet import TinyImagenetDataModule

BATCHES: dict[str, Any] = {"seed": 21, "batch_size": 12, "evaluation_batch_size": 7}
SHOTS = ShotRule(rule="mine", many_above=100, few_below=20)
SPLIT = {"test_fraction": 0.2, "split_seed": 21}
CORPUS = {"name": "pairs", "source": "de", "target": "en", "train": "train", "dev": "val", "test": "test"}
PHOTOGRAPHS = {"images": "photos", "test_folder": "val", "image_size": 8, "least_area": 0.08, "shorter_side": 10}
MODULES: dict[str, tuple[Callable[..., SplitDataModule], dict[str, Any]]] = {
    "airline": (AirlineDataModule, {"max_length": 6, "minimum_count": 1, **SPLIT}),
    "cifar100": (Cifar100DataModule, {"padding": 4, "shots": ShotRule(rule="mine", many_above=4, few_below=2)}),
    "tiny_imagenet": (TinyImagenetDataModule, {}),
    "imagenet": (ImagenetDataModule, {"shots": SHOTS, **PHOTOGRAPHS}),
    "pairs": (ParallelCorpusDataModule, {"hub": "owner/pairs", "vocabulary_size": 60, "max_length": 30, **CORPUS}),
    "digits": (lambda folder, **settings: DigitsDataModule(**settings), {"shots": SHOTS, **SPLIT}),
    "copy": (
        lambda folder, **settings: CopyDataModule(**settings),
        {"words": 6, "shortest": 2, "longest": 9, "train_size": 300, "evaluation_size": 20, "data_seed": 3},
    ),
}


def module(name: str, folder: Path | None = None, **changes: Any) -> Any:
    """The data module of a data set, not yet set up."""
    make, settings = MODULES[name]
    data = make(folder=folder, **settings | BATCHES | changes)
    data.trainer = trainer()
    return data


def ready(name: str, folder: Path | None = None, **changes: Any) -> Any:
    """The data module of a data set, set up."""
    data = module(name, folder, **changes)
    data.setup()
    return data


def loaded(name: str, folder: Path | None = None, **changes: Any) -> Any:
    """The data of a data set."""
    return ready(name, folder, **changes).data


def refusal(name: str, folder: Path | None, error: type[Exception], **changes: Any) -> str:
    """The message of the error that a data set raises at the start."""
    with pytest.raises(error) as caught:
        loaded(name, folder, **changes)
    return str(caught.value)


def trainer(device: str = "cpu", **changes: Any) -> SimpleNamespace:
    """What a data module asks of a Trainer; the real one takes longer to build, and asks back."""
    asked = {"world_size": 1, "global_rank": 0, "accumulate_grad_batches": 1, "max_epochs": 3, "training": True}
    progress = SimpleNamespace(epoch_progress=SimpleNamespace(current=SimpleNamespace(processed=0)))
    strategy = SimpleNamespace(root_device=torch.device(device))
    return SimpleNamespace(**asked | changes, current_epoch=0, fit_loop=progress, strategy=strategy)


def small_data(size: int = 31, classes: int = 3, **changes: Any) -> ClassificationData:
    """Examples whose only feature is ten times their number, and whose class is their number modulo `classes`."""
    numbers = torch.arange(size)
    given = {
        "train": InMemory(10.0 * numbers[:, None], numbers % classes),
        "test": InMemory(-10.0 * numbers[:17, None], numbers[:17] % classes),
        "class_names": tuple(map(str, range(classes))),
        "facts": {"train_size": size, "test_size": 17},
    }
    return ClassificationData(**given | changes)


class SmallDataModule(ClassificationDataModule):
    """A data set of one's own: `small_data`, or the given one."""

    def __init__(self, given: ClassificationData | None = None, **batches: Any) -> None:
        super().__init__(**BATCHES | batches)
        self._given = given or small_data()

    def load(self) -> ClassificationData:
        return self._given


def small(given: ClassificationData | None = None, device: str = "cpu", **batches: Any) -> SmallDataModule:
    """A small data module that is set up, with a stand-in for its Trainer."""
    data = SmallDataModule(given, **batches)
    data.trainer = trainer(device)
    data.setup()
    return data


def epochs(data: SplitDataModule, count: int) -> list[list[Batch]]:
    """The training batches of some epochs, in the way that Lightning asks for them."""
    loader = data.train_dataloader()
    found = []
    for epoch in range(count):
        loader.sampler.set_epoch(epoch)
        found.append(list(loader))
    return found


def chosen(batches: list[Batch]) -> list[list[int]]:
    """The numbers of the examples of each batch."""
    return [batch.indices.tolist() for batch in batches]


def words(tokens: Tensor) -> list[int]:
    """The token numbers of a sentence, without those that stand for no word."""
    return [token for token in tokens.tolist() if token not in (PADDING, BEGIN, END)]
