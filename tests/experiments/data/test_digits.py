"""The digits that ship with scikit-learn, as a classification data set."""

import torch

from tests.experiments.data.support import loaded


def test_digits_are_scaled_pixels_with_every_class_on_both_sides() -> None:
    data = loaded("digits")

    assert data.train.inputs.shape == (1438, 64)
    assert data.test.inputs.shape == (359, 64)
    for inputs, targets in (
        (data.train.inputs, data.train.targets),
        (data.test.inputs, data.test.targets),
    ):
        assert inputs.dtype == torch.float32
        assert (inputs.min(), inputs.max()) == (0, 1)
        assert targets.dtype == torch.int64
        assert torch.allclose(targets.bincount() / len(targets), torch.tensor(0.1), atol=0.005)
    assert data.class_names == tuple("0123456789")
    assert data.facts["records"] == data.facts["train_size"] + data.facts["test_size"] == 1797


def test_split_follows_the_seed() -> None:
    first, again, other = (loaded("digits", split_seed=seed) for seed in (21, 21, 42))

    assert first.content_hash == again.content_hash != other.content_hash
    assert torch.equal(first.test.inputs, again.test.inputs)


def test_a_long_tail_keeps_fewer_of_each_later_class_and_all_of_the_test_side() -> None:
    balanced, tailed = loaded("digits"), loaded("digits", imbalance=20)
    counts = tailed.train.targets.bincount().tolist()

    assert counts == sorted(counts, reverse=True)
    assert counts[0] in balanced.train.targets.bincount()
    assert counts[-1] == int(max(balanced.train.targets.bincount()) / 20)
    assert torch.equal(tailed.test.inputs, balanced.test.inputs)
    assert balanced.shots is None
    assert sorted(torch.cat(list(tailed.shots.values())).tolist()) == list(range(10))
    assert [tailed.facts[f"{group}_classes"] for group in ("many", "medium", "few")] == [
        sum(count > 100 for count in counts),
        sum(20 <= count <= 100 for count in counts),
        sum(count < 20 for count in counts),
    ]


def test_the_tail_has_a_seed_of_its_own() -> None:
    first, other = (loaded("digits", imbalance=20, tail_seed=seed) for seed in (0, 1))

    assert first.content_hash != other.content_hash
    assert torch.equal(first.test.inputs, other.test.inputs)
    assert torch.equal(first.train.targets.bincount(), other.train.targets.bincount())
