"""What the host knows of the supports of an output layer, from an earlier step: it decides only what is fast."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from sharmix._operators.triton.launch import power_of_two

_SAMPLE = 256  # rows whose counts the host gets to know
_LEAST_ROOM, _MOST_ROOM = 32, 1024
_SHARE = 200  # sums over lists are faster than products where the mean support is at most classes/200,
_DENSE = 0.1  # and at most this share of the rows has no list

_known: Any = WeakTensorKeyDictionary()  # the `Supports` of each weight, which end with it


class Supports:
    """How many nonzero errors some rows had: the device writes them here, and nobody waits."""

    def __init__(self, on_cuda: bool) -> None:
        self.counts = torch.zeros(_SAMPLE, dtype=torch.int32, device="cpu", pin_memory=on_cuda)

    def room(self, classes: int) -> int:
        """The room for the list of a row; 0 where dense products are faster, or nothing is known."""
        counts = sorted(count for count in self.counts.tolist() if count)  # of a row that is ignored it is 0
        listed = counts[: math.ceil((1 - _DENSE) * len(counts))]
        if not listed or sum(listed) * _SHARE > classes * len(listed):
            return 0
        room = power_of_two(math.ceil(2 * sum(listed) / len(listed)))
        room = min(_MOST_ROOM, max(_LEAST_ROOM, room))
        return room if sum(count > room for count in counts) <= _DENSE * len(counts) else 0

    def keep(self, counts: Tensor) -> None:
        """Have the counts of some rows copied; the host waits only where torch is to be deterministic."""
        if not (counts.is_cuda and torch.cuda.is_current_stream_capturing()):
            some = some_rows(counts).int()
            self.counts[: len(some)].copy_(some, non_blocking=not torch.are_deterministic_algorithms_enabled())


def supports_of(weight: Tensor) -> Supports | None:
    """Of a weight that is computed anew for each step nothing is known: dense products serve it."""
    if not weight.is_leaf:
        return None
    if weight not in _known:
        _known[weight] = Supports(weight.is_cuda)
    return _known[weight]


def some_rows(values: Tensor) -> Tensor:
    return values[:: math.ceil(len(values) / _SAMPLE)]
