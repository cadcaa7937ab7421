"""Smaller training sets: which examples a class keeps, and which classes count as many, medium and few."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from experiments.data.splits import Indices
from experiments.settings import NotNegative, Settings


def exponential_tail(labels: Indices, imbalance: float, seed: int) -> Indices:
    """Indices [m] of the kept examples: at most `exponential_counts(...)[i]` of class i, chosen at random by `seed`."""
    counts = np.bincount(labels)
    return keep_counts(labels, np.minimum(counts, exponential_counts(counts.max(), len(counts), imbalance)), seed)


def exponential_counts(largest: int, classes: int, imbalance: float) -> list[int]:
    """How many examples class i keeps: ⌊largest · imbalance^(−i/(classes − 1))⌋, at least 1.

    Source: Cui et al., Class-Balanced Loss, 2019, section 5.1.
    """
    return [max(1, int(largest * imbalance ** (-i / max(1, classes - 1)))) for i in range(classes)]


def keep_counts(labels: Sequence[int] | Indices, counts: Sequence[int], seed: int, repeat: bool = False) -> Indices:
    """A random choice of `counts[c]` examples of each class c; their indices, ascending.

    A class with fewer examples repeats some if `repeat` allows it, and raises a ValueError otherwise.
    """
    generator = np.random.RandomState(seed)  # NumPy promises that its stream never changes
    labels, kept = np.asarray(labels), []
    for name, count in enumerate(counts):
        own = np.flatnonzero(labels == name)
        if len(own) < count and not (repeat and len(own)):
            raise ValueError(f"class {name} has {len(own)} examples, {count} are to be kept")
        rounds = -(-count // max(1, len(own)))
        kept.append(np.tile(generator.permutation(own), rounds)[:count])
    return np.sort(np.concatenate(kept))


class ShotRule(Settings):
    """Groups of classes by their number of training examples: `conf/data/shots/`."""

    rule: str
    many_above: NotNegative
    few_below: NotNegative

    def groups(self, counts: Sequence[int]) -> dict[str, Tensor]:
        """The class indices of each non-empty group (`many`, `medium`, `few`), by training examples of a class."""
        by_class = torch.tensor(counts)
        many, few = by_class > self.many_above, by_class < self.few_below
        groups = {"many": many, "medium": ~many & ~few, "few": few}
        return {name: members.nonzero().flatten() for name, members in groups.items() if members.any()}

    def facts(self, counts: Sequence[int]) -> dict[str, int | str]:
        """Facts for the record about a long tail: its largest and smallest class, the rule, the sizes of the groups."""
        rule = f"many > {self.many_above}, few < {self.few_below} training examples ({self.rule})"
        sizes = {f"{name}_classes": len(members) for name, members in self.groups(counts).items()}
        return {"largest_class": max(counts), "smallest_class": min(counts), "shot_rule": rule, **sizes}
