"""How classes are split over processes, and targets among them. Tuples, since operators take their fields."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from sharmix._private_torch import process_group


class Split(NamedTuple):
    """The classes of each process of a group.

    Attributes:
        sizes: the number of classes on each process.
        group_name: the name of the process group, which operators take in place of the group.
        candidates: K, the number of largest logits of a row that a process sends to all others.
    """

    sizes: Sequence[int]
    group_name: str
    candidates: int

    @property
    def group(self) -> dist.ProcessGroup:
        return process_group(self.group_name)

    @property
    def rank(self) -> int:
        """The number of this process in the group."""
        return dist.get_rank(self.group)

    @property
    def classes(self) -> int:
        return sum(self.sizes)

    def own_columns(self, indices: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
        """The column of each row's class in this process's logits, [rows, 1], and whether the process holds it."""
        columns = indices.unsqueeze(-1) - sum(self.sizes[: self.rank])
        held = (columns >= 0) & (columns < logits.shape[-1])
        return torch.where(held, columns, 0), held


class Targets(NamedTuple):
    """The target of each row, y = (1 − ε) one-hot(index) + ε/classes.

    Attributes:
        indices: the classes, int64 [rows].
        ignore_index: the class of rows that do not count.
        smoothing: ε, the label smoothing.
    """

    indices: Tensor
    ignore_index: int
    smoothing: float

    @property
    def counted(self) -> Tensor:
        return self.indices != self.ignore_index
