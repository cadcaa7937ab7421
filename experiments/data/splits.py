"""Splitting examples into a training and a test side."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from experiments.errors import ConfigurationError

Indices = NDArray[np.int64]


def groups_of_repeats(*keys: Sequence[str]) -> Indices:
    """The group of each example, [n]: examples that share an id, a text or another key, also through a chain of others.

    Each of `keys` has one kind of key of all n examples.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    count = len(keys[0])
    numbered = [np.unique(np.asarray(key, dtype=object), return_inverse=True)[1] for key in keys]
    # A graph of examples (its first nodes) and keys, with an edge from each example to its keys.
    starts = np.cumsum([count, *(codes.max(initial=-1) + 1 for codes in numbered)])
    key_nodes = np.concatenate([c + start for c, start in zip(numbered, starts[:-1], strict=True)])
    examples = np.tile(np.arange(count), len(keys))
    graph = coo_array((np.ones(len(examples)), (examples, key_nodes)), shape=(starts[-1],) * 2)
    return connected_components(graph, directed=False)[1].astype(np.int64)[:count]


def stratified_group_split(
    labels: Sequence[str] | Sequence[int] | Indices,
    groups: Sequence[int] | Indices,
    test_fraction: float,
    seed: int,
    setting: str = "test_fraction",
    classes_in_both: bool = True,
) -> tuple[Indices, Indices]:
    """Split examples so that each class keeps its share and each group stays on one side.

    Groups are visited in random order; one joins the test side when that brings the test counts per class t closer to
    the asked ones, ‖target − t − g‖² < ‖target − t‖² for a group of counts g. Where groups are single examples the
    counts are met exactly. (scikit-learn's `StratifiedGroupKFold` allows only shares of 1/k, and is slow.)

    Args:
        labels, groups: class and group of each example, [n].
        test_fraction: share of each class held out, above 0 and below 1.
        seed: of the visiting order.
        setting: the name of the share in the error's message.
        classes_in_both: whether each class must have examples on the test side too.

    Returns:
        Training and test indices, each ascending.

    Raises:
        ConfigurationError: a class has no example on a side that needs one.
    """
    classes, class_of = np.unique(labels, return_inverse=True)
    group_names, group_of = np.unique(groups, return_inverse=True)
    # How often each class occurs in each group, as a sparse matrix: for ImageNet a dense one would take 10 GB.
    pairs, counts = np.unique(group_of * len(classes) + class_of, return_counts=True)
    groups_of_pairs, classes_of_pairs = np.divmod(pairs, len(classes))
    starts = np.searchsorted(groups_of_pairs, np.arange(len(group_names) + 1))

    wanting = np.rint(test_fraction * np.bincount(class_of)).astype(np.int64)
    in_test = np.zeros(len(group_names), dtype=bool)
    # RandomState, not default_rng: NumPy promises that its stream never changes.
    for group in np.random.RandomState(seed).permutation(len(group_names)):
        own = slice(starts[group], starts[group + 1])
        own_classes, count = classes_of_pairs[own], counts[own]
        if 2 * wanting[own_classes] @ count > count @ count:
            wanting[own_classes] -= count
            in_test[group] = True

    example_in_test = in_test[group_of]
    for side, chosen in (("training", ~example_in_test), ("test", example_in_test))[: 1 + classes_in_both]:
        absent = np.setdiff1d(np.arange(len(classes)), class_of[chosen])
        if len(absent):
            raise ConfigurationError(
                f"{setting}={test_fraction} is not allowed; no example of class {str(classes[absent[0]])!r} is on the "
                f"{side} side: give more examples or another share"
            )
    return np.flatnonzero(~example_in_test), np.flatnonzero(example_in_test)


def oversampled(labels: Indices, seed: int) -> Indices:
    """Indices of all examples, and of random copies until each class has as many examples as the largest."""
    counts, generator = np.bincount(labels), np.random.RandomState(seed)
    copies = [generator.choice(np.flatnonzero(labels == c), counts.max() - n) for c, n in enumerate(counts) if n]
    return np.concatenate([np.arange(len(labels)), *copies])
