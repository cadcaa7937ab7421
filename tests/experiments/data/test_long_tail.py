"""Long-tailed training sets."""

import numpy as np
import pytest
from omegaconf import OmegaConf

from experiments.data.long_tail import exponential_counts, keep_counts
from experiments.identity import ROOT
from tests.experiments.data.support import SHOTS


def test_the_profile_of_cifar100_is_the_one_in_use():
    for imbalance, images in ((1, 50_000), (10, 19_573), (50, 12_608), (100, 10_847)):
        counts = exponential_counts(500, 100, imbalance)
        assert sum(counts) == images, imbalance
        assert counts == [int(500 * (1 / imbalance) ** (i / 99)) for i in range(100)], imbalance
        assert (counts[0], counts[-1]) == (500, 500 // imbalance), imbalance


@pytest.mark.parametrize(("name", "largest", "classes"), [("cifar100", 500, 100), ("tiny_imagenet", 250, 200)])
def test_the_balanced_subset_has_as_many_images_as_the_long_tail(name, largest, classes):
    tailed, subset = (OmegaConf.load(ROOT / f"conf/experiment/{name}_{part}.yaml") for part in ("lt", "subset"))
    assert subset.data.train_size == sum(exponential_counts(largest, classes, tailed.data.imbalance))


def test_every_class_keeps_an_example():
    assert min(exponential_counts(10, 20, 1000)) == 1
    assert exponential_counts(10, 1, 1000) == [10]


def test_the_counts_are_kept_of_each_class_by_the_seed():
    labels = np.tile(np.arange(4), 50)
    kept = keep_counts(labels, [50, 20, 3, 1], seed=0)
    assert np.bincount(labels[kept]).tolist() == [50, 20, 3, 1]
    assert (np.diff(kept) > 0).all()
    assert kept.tolist() == keep_counts(labels, [50, 20, 3, 1], seed=0).tolist()
    assert kept.tolist() != keep_counts(labels, [50, 20, 3, 1], seed=1).tolist()


def test_a_class_with_too_few_examples_repeats_them_as_evenly_as_it_can():
    times = np.bincount(keep_counts([0, 0, 1], [5, 1], seed=0, repeat=True))
    assert sorted(times[:2]) == [2, 3]
    assert times[2] == 1


def test_shot_groups_are_bounded_as_the_rule_says():
    groups = SHOTS.groups([500, 101, 100, 20, 19, 1])
    assert {name: members.tolist() for name, members in groups.items()} == {
        "many": [0, 1],
        "medium": [2, 3],
        "few": [4, 5],
    }
    assert set(SHOTS.groups([500, 400])) == {"many"}
