"""A share of the training examples taken out for validation, in every data set for classification."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from experiments.data.airline import AirlineDataModule
from experiments.data.base import ClassificationDataModule
from experiments.data.cifar100 import Cifar100DataModule
from experiments.data.digits import DigitsDataModule
from experiments.data.examples import ClassificationData, Examples, InMemory
from experiments.data.imagenet import ImagenetDataModule
from experiments.data.photographs import decoded, measuring_transform
from experiments.data.text import Vocabulary
from experiments.errors import ConfigurationError
from tests.experiments.data.generated import WNIDS, repeating_tweets, write_tweets
from tests.experiments.data.support import BATCHES, SHOTS, SmallDataModule, small, small_data, trainer

IMAGENET = {"images": "photos", "test_folder": "val", "image_size": 8, "least_area": 0.08, "shorter_side": 10}
Load = Callable[..., ClassificationData]
# The hashes of the contents that records were made with; what a JPEG holds depends on the library that wrote it.
CONTENT_HASHES = {
    "airline": "90ab743748d0a1901becc3e3c9b92a58a03bd0fb5e2faab0a3b00c374bfb84bc",
    "cifar100": "a7bdba689b40174af7c585a496b3cfd4bba3673a6b41d55a689fe4261410adfe",
    "digits": "c5f65ed18fb0e15403678c94de526f28a579e194a1588b39bdeabeacdce9742f",
}
# A share that would take all examples of a class, of 16, 5, some 144 or one training example.
TOO_MUCH = {"airline": 0.98, "cifar100": 0.95, "digits": 0.999, "imagenet": 0.6}


def set_up(data: ClassificationDataModule) -> ClassificationData:
    data.trainer = trainer()
    data.setup()
    return data.data


@pytest.fixture(params=TOO_MUCH)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def load(name: str, request: pytest.FixtureRequest) -> Load:
    """Loads the data set of the name, under further options."""
    if name == "airline":
        folder = request.getfixturevalue("tweets_folder")
        options = {"max_length": 6, "minimum_count": 1, "test_fraction": 0.2, "split_seed": 21}
        return lambda **changes: set_up(AirlineDataModule(folder=folder, **options | BATCHES | changes))
    if name == "cifar100":
        folder = request.getfixturevalue("cifar")
        return lambda **changes: set_up(Cifar100DataModule(folder=folder, **BATCHES | changes))
    if name == "digits":
        options = {"test_fraction": 0.2, "split_seed": 21}
        return lambda **changes: set_up(DigitsDataModule(**options | BATCHES | changes))
    folder = request.getfixturevalue("photos")
    return lambda **changes: set_up(ImagenetDataModule(folder=folder, **IMAGENET | BATCHES | changes))


def rows(examples: Examples, indices: Tensor | None = None) -> list[tuple]:
    """The inputs and the target of each example."""
    chosen = torch.arange(len(examples.targets)) if indices is None else indices
    inputs, targets, unreadable = examples.read(chosen, torch.zeros_like(chosen))
    assert unreadable == []
    return [(*row, target) for row, target in zip(inputs.flatten(1).tolist(), targets.tolist(), strict=True)]


def test_no_share_leaves_everything_as_it_is(name: str, load: Load) -> None:
    plain, none = load(), load(validation_fraction=0.0, validation_seed=3)

    assert plain.content_hash == none.content_hash == CONTENT_HASHES.get(name, plain.content_hash)
    assert none.validation is None
    assert plain.facts == none.facts
    assert "validation_size" not in none.facts
    assert torch.equal(plain.train.targets, none.train.targets)
    few = torch.arange(20)
    assert rows(plain.train, few) == rows(none.train, few)


def test_each_class_keeps_its_share(name: str, load: Load) -> None:
    whole = load()
    classes = len(whole.class_names)
    counts = whole.train.targets.bincount(minlength=classes)
    for fraction in (0.15, 0.2, 0.45):
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


def test_every_example_is_in_one_part_with_its_own_target(name: str, load: Load) -> None:
    whole, data = load(), load(validation_fraction=0.3)
    compared = lengths if name == "airline" else rows  # without a part of the tweets the numbers of tokens are others
    if name == "imagenet":  # whose images here are all alike
        assert sorted([*data.train.targets, *data.validation.targets]) == sorted(whole.train.targets)
    else:
        assert sorted([*compared(data.train), *compared(data.validation)]) == sorted(compared(whole.train))
    assert compared(data.test, torch.arange(5)) == compared(whole.test, torch.arange(5))


def lengths(examples: Examples, indices: Tensor | None = None) -> list[tuple[int, int]]:
    """The number of tokens and the target of each tweet."""
    found = rows(examples, indices)
    return [(sum(number != Vocabulary.padding for number in numbers), target) for *numbers, target in found]


def test_the_vocabulary_is_that_of_the_tweets_that_remain(tweets_folder: Path) -> None:
    options = {"max_length": 6, "minimum_count": 1, "test_fraction": 0.2, "split_seed": 21, **BATCHES}
    whole = set_up(AirlineDataModule(folder=tweets_folder, **options))
    data = set_up(AirlineDataModule(folder=tweets_folder, **options, validation_fraction=0.3))
    numbers = {number for row in rows(data.train) for number in row[:-1]} - {Vocabulary.padding}
    assert max(numbers) + 1 == data.facts["vocabulary_size"] == data.sizes["vocabulary_size"]
    assert Vocabulary.unknown not in numbers  # each word of a tweet that remains is known
    assert any(Vocabulary.unknown in row for row in rows(data.validation))
    assert data.facts["vocabulary_size"] < whole.facts["vocabulary_size"]


def test_shot_groups_and_counts_are_those_of_the_examples_that_remain() -> None:
    options = {"test_fraction": 0.2, "split_seed": 21, "imbalance": 20, "shots": SHOTS, **BATCHES}
    data = set_up(DigitsDataModule(**options, validation_fraction=0.4))
    counts = data.train.targets.bincount().tolist()
    assert [data.facts[f"train_{name}"] for name in range(10)] == counts
    assert (data.facts["largest_class"], data.facts["smallest_class"]) == (max(counts), min(counts))
    assert data.shots["few"].tolist() == [name for name, count in enumerate(counts) if count < 20]
    whole = set_up(DigitsDataModule(**options))
    assert data.facts["few_classes"] == len(data.shots["few"]) > whole.facts["few_classes"]


def test_the_hash_tells_the_choice_apart(load: Load) -> None:
    fractions = [load(validation_fraction=fraction).content_hash for fraction in (0.0, 0.2, 0.2, 0.4)]
    assert fractions[0] != fractions[1] == fractions[2] != fractions[3] != fractions[0]
    seeds = [load(validation_fraction=0.3, validation_seed=seed) for seed in (0, 1)]
    assert seeds[0].content_hash != seeds[1].content_hash
    assert load(validation_fraction=0.2, seed=5).content_hash == fractions[1]  # apart from the training seed


def test_an_impossible_share_is_one_error(name: str, load: Load) -> None:
    with pytest.raises(ConfigurationError, match=rf"data\.validation_fraction={TOO_MUCH[name]}: no example of class"):
        load(validation_fraction=TOO_MUCH[name])
    with pytest.raises(ConfigurationError, match=r"data\.validation_fraction=1e-06: .*no validation example"):
        load(validation_fraction=1e-6)


def test_the_message_of_an_impossible_share_names_no_other_setting() -> None:
    data = small_data()
    with pytest.raises(ConfigurationError) as caught:
        small(data, validation_fraction=0.97)
    assert "test_fraction" not in str(caught.value)


def test_repeats_stay_on_one_side(tweets_folder: Path) -> None:
    write_tweets(tweets_folder, repeating_tweets())
    options = {"max_length": 6, "minimum_count": 1, "test_fraction": 0.2, "split_seed": 21, **BATCHES}
    sides = set()
    for seed in range(12):
        options |= {"validation_fraction": 0.3, "validation_seed": seed}
        data = set_up(AirlineDataModule(folder=tweets_folder, **options))
        parts = {"train": data.train, "validation": data.validation, "test": data.test}
        # The four joined records have short texts.
        short = {
            part: sum(sum(number != 0 for number in row[:-1]) <= 2 for row in rows(own)) for part, own in parts.items()
        }
        assert sorted(short.values()) == [0, 0, 4], f"validation_seed={seed}: {short}"
        sides |= {part for part, number in short.items() if number}
    assert "train" in sides


def test_small_classes_never_lose_all_their_training_examples() -> None:
    for fraction in (0.05, 0.2, 0.4, 0.5):
        options = {"test_fraction": 0.2, "split_seed": 21, "imbalance": 140, "shots": SHOTS, **BATCHES}
        data = set_up(DigitsDataModule(**options, validation_fraction=fraction))
        whole = set_up(DigitsDataModule(**options))
        assert whole.train.targets.bincount().min() == 1
        assert data.train.targets.bincount(minlength=10).min() >= 1, fraction
        assert len(data.validation.targets), fraction


def test_validation_images_are_read_as_test_images_are(photos: Path) -> None:
    data = set_up(ImagenetDataModule(folder=photos, **IMAGENET, **BATCHES, validation_fraction=0.2))
    chosen = torch.arange(len(data.validation.targets))
    inputs, _, _ = data.validation.read(chosen, chosen)
    content = (photos / "photos/train" / WNIDS[-1] / f"{WNIDS[-1]}_0.JPEG").read_bytes()
    middle = measuring_transform(8, 10)(decoded(content))
    assert len(chosen) == 2
    assert all(torch.equal(image, middle) for image in inputs)


def test_images_that_a_long_tail_repeats_stay_on_one_side(photos: Path, tmp_path: Path) -> None:
    from tests.experiments.data.test_imagenet import COUNTS, write_counts

    (tmp_path / "photos").symlink_to(photos / "photos")
    write_counts(tmp_path, COUNTS)
    options = {"long_tailed": True, "repeat_images": True, "validation_fraction": 0.4}
    data = set_up(ImagenetDataModule(folder=tmp_path, **IMAGENET, **BATCHES, **options))
    assert data.train.targets.bincount().tolist() == [*COUNTS[:-1], 3]
    assert data.validation.targets.tolist() == [999, 999]


def test_a_validation_loader_reads_the_examples_taken_out() -> None:
    data = small(validation_fraction=0.2, batch_size=5)
    batches = list(data.val_dataloader()[1])
    whole = small_data()
    found = torch.cat([batch.inputs for batch in batches]).flatten().div(10).long()
    assert len(found) == 6
    assert torch.equal(whole.train.targets[found], torch.cat([batch.targets for batch in batches]))
    trained = torch.cat([batch.inputs for batch in data.train_dataloader()]).flatten().div(10).long()
    assert sorted([*found.tolist(), *trained.tolist()]) == list(range(31))


def test_examples_of_one_group_stay_together() -> None:
    groups = torch.arange(60) // 4
    given = small_data(60, train=InMemory(10.0 * torch.arange(60)[:, None], torch.arange(60) % 2), groups=groups)
    for seed in range(5):
        data = SmallDataModule(given, validation_fraction=0.3, validation_seed=seed)
        kept, held_out = (
            {int(row[0] / 10) // 4 for row in rows(side)} for side in (set_up(data).train, data.data.validation)
        )
        assert not kept & held_out, seed
        assert kept | held_out == set(range(15)), seed
