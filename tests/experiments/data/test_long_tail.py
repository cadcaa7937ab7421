"""Long-tailed training sets."""

import numpy as np
import pytest

from experiments.data.long_tail import exponential_counts, keep_counts, shot_facts, shot_groups
from experiments.settings import ShotSettings

SHOTS = ShotSettings(rule="mine", many_above=100, few_below=20)


@pytest.mark.parametrize(("imbalance", "images"), [(1, 50_000), (10, 19_573), (50, 12_608), (100, 10_847)])
def test_the_profile_of_cifar100_is_the_one_in_use(imbalance: float, images: int) -> None:
    counts = exponential_counts(500, 100, imbalance)
    assert sum(counts) == images
    assert counts == [int(500 * (1 / imbalance) ** (i / 99)) for i in range(100)]
    assert (counts[0], counts[-1]) == (500, 500 // imbalance)


def test_every_class_keeps_an_example() -> None:
    assert min(exponential_counts(10, 20, 1000)) == 1
    assert exponential_counts(10, 1, 1000) == [10]


def test_the_counts_are_kept_of_each_class_by_the_seed() -> None:
    labels = np.tile(np.arange(4), 50)
    kept = keep_counts(labels, [50, 20, 3, 1], seed=0)
    assert np.bincount(labels[kept]).tolist() == [50, 20, 3, 1]
    assert (np.diff(kept) > 0).all()
    assert kept.tolist() == keep_counts(labels, [50, 20, 3, 1], seed=0).tolist()
    assert kept.tolist() != keep_counts(labels, [50, 20, 3, 1], seed=1).tolist()


def test_too_few_examples_of_a_class_are_named_or_repeated() -> None:
    labels = np.array([0, 0, 1])
    with pytest.raises(ValueError, match="class 1 has 1 examples, 3 are to be kept"):
        keep_counts(labels, [1, 3], seed=0)
    assert np.bincount(labels[keep_counts(labels, [1, 3], seed=0, repeat=True)]).tolist() == [1, 3]
    with pytest.raises(ValueError, match="class 2 has 0 examples"):
        keep_counts(labels, [1, 1, 1], seed=0, repeat=True)


def test_shot_groups_are_bounded_as_the_rule_says() -> None:
    groups = shot_groups([500, 101, 100, 20, 19, 1], SHOTS)
    assert {name: members.tolist() for name, members in groups.items()} == {
        "many": [0, 1],
        "medium": [2, 3],
        "few": [4, 5],
    }
    assert set(shot_groups([500, 400], SHOTS)) == {"many"}


def test_a_record_tells_the_rule_and_the_sizes() -> None:
    assert shot_facts([500, 101, 100, 20, 19, 1], SHOTS) == {
        "largest_class": 500,
        "smallest_class": 1,
        "shot_rule": "many > 100, few < 20 training examples (mine)",
        "many_classes": 2,
        "medium_classes": 2,
        "few_classes": 2,
    }
