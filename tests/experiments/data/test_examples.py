"""A share of the training examples taken out for validation, in every data set for classification."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from experiments.data.examples import ClassificationData
from tests.experiments.data.support import SHOTS, loaded, small, small_data

Load = Callable[..., ClassificationData]


@pytest.fixture(params=["airline", pytest.param("cifar100", marks=pytest.mark.medium), "digits", "imagenet"])
def name(request):
    return request.param


@pytest.fixture
def load(name, folder_of):
    """Loads the data set of the name, under further options."""
    folder = folder_of(name)
    return lambda **changes: loaded(name, folder, **changes)


def rows(examples):
    """The inputs and the target of each example."""
    chosen = torch.arange(len(examples.targets))
    inputs, targets = examples.read(chosen, torch.zeros_like(chosen))
    return [(*row, target) for row, target in zip(inputs.flatten(1).tolist(), targets.tolist(), strict=True)]


def test_each_class_keeps_its_share(name, load):
    whole = load()
    assert whole.validation is None
    assert "validation_size" not in whole.facts
    classes = len(whole.class_names)
    counts = whole.train.targets.bincount(minlength=classes)
    for fraction in (0.2, 0.45):
        data = load(validation_fraction=fraction)
        kept, held_out = (side.targets.bincount(minlength=classes) for side in (data.train, data.validation))
        assert torch.equal(kept + held_out, counts), fraction
        assert torch.equal(data.test.targets, whole.test.targets), fraction
        assert data.facts["train_size"] == len(data.train.targets) == int(kept.sum()), fraction
        assert data.facts["validation_size"] == len(data.validation.targets) == int(held_out.sum()), fraction
        exact = np.rint(fraction * counts.numpy())
        # Examples that repeat one another stay together, so among the tweets a class may miss its share by a few.
        assert abs(held_out.numpy() - exact).max() <= (2 if name == "airline" else 0), fraction
        assert kept.min() >= 1, fraction


def test_the_hash_tells_the_choice_apart(load):
    fractions = [load(validation_fraction=fraction).content_hash for fraction in (0.0, 0.2, 0.2, 0.5)]
    assert fractions[0] != fractions[1] == fractions[2] != fractions[3] != fractions[0]
    assert len({load(validation_fraction=0.5, validation_seed=seed).content_hash for seed in range(4)}) > 1
    assert load(validation_fraction=0.2, seed=5).content_hash == fractions[1]  # apart from the training seed


def test_shot_groups_and_counts_are_those_of_the_examples_that_remain():
    options = {"imbalance": 140.0, "shots": SHOTS}
    whole = loaded("digits", **options)
    assert whole.train.targets.bincount().min() == 1
    for fraction in (0.05, 0.4, 0.5):
        data = loaded("digits", **options, validation_fraction=fraction)
        counts = data.train.targets.bincount(minlength=10).tolist()
        assert min(counts) >= 1  # no class loses all its training examples
        assert [data.facts[f"train_{name}"] for name in range(10)] == counts
        assert (data.facts["largest_class"], data.facts["smallest_class"]) == (max(counts), min(counts))
        assert data.shots["few"].tolist() == [name for name, count in enumerate(counts) if count < 20]
    assert data.facts["few_classes"] == len(data.shots["few"]) > whole.facts["few_classes"]


def test_every_example_is_in_one_part_with_its_own_target():
    whole, data = small_data(), small(validation_fraction=0.2).data
    assert len(data.validation.targets) == 6
    assert sorted([*rows(data.train), *rows(data.validation)]) == sorted(rows(whole.train))
    assert rows(data.test) == rows(whole.test)
