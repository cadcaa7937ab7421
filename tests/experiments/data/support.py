"""What the tests of the data share: a stand-in for the Trainer, the options of batches, a small data module."""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from experiments.data.base import ClassificationDataModule
from experiments.data.examples import Batch, ClassificationData, InMemory
from experiments.data.long_tail import ShotRule
from experiments.data.special_tokens import BEGIN, END, PADDING

BATCHES: dict[str, Any] = {"seed": 21, "batch_size": 12, "evaluation_batch_size": 7}
COPIES = {"words": 6, "shortest": 2, "longest": 9, "train_size": 300, "evaluation_size": 20, "data_seed": 3}
SHOTS = ShotRule(rule="mine", many_above=100, few_below=20)


def trainer(device: str = "cpu", epoch: int = 0, **changes: Any) -> SimpleNamespace:
    """What a data module asks of a Trainer; the real one takes longer to build, and asks back."""
    asked = {"world_size": 1, "global_rank": 0, "accumulate_grad_batches": 1, "max_epochs": 3, "training": True}
    progress = SimpleNamespace(epoch_progress=SimpleNamespace(current=SimpleNamespace(processed=epoch)))
    strategy = SimpleNamespace(root_device=torch.device(device))
    return SimpleNamespace(**asked | changes, current_epoch=epoch, fit_loop=progress, strategy=strategy)


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


def chosen(batches: list[Batch]) -> list[list[int]]:
    """The numbers of the examples of each batch."""
    return [batch.indices.tolist() for batch in batches]


def words(tokens: Tensor) -> list[int]:
    """The token numbers of a sentence, without those that stand for no word."""
    return [token for token in tokens.tolist() if token not in (PADDING, BEGIN, END)]


class Broken:
    """Examples of which some cannot be read.

    Args:
        size: number of examples.
        unreadable: numbers of those that cannot be read.
    """

    def __init__(self, size: int, unreadable: set[int]) -> None:
        self.targets, self.unreadable = torch.arange(size) % 3, unreadable

    def read(self, indices: Tensor, seeds: Tensor) -> tuple[Tensor, Tensor, list[str]]:
        read = [index for index in indices.tolist() if index not in self.unreadable]
        lost = [f"example {index}" for index in indices.tolist() if index in self.unreadable]
        return 10.0 * torch.tensor(read)[:, None], self.targets[read], lost
