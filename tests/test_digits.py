"""The digits that ship with scikit-learn, as a classification data set."""

import torch

from experiments.digits import DigitsSettings, load_digits_data


def settings(test_fraction: float = 0.2, split_seed: int = 21) -> DigitsSettings:
    return DigitsSettings(name="digits", test_fraction=test_fraction, split_seed=split_seed)


def test_digits_are_scaled_pixels_with_every_class_on_both_sides() -> None:
    data = load_digits_data(settings())

    assert data.train_inputs.shape == (1438, 64)
    assert data.test_inputs.shape == (359, 64)
    for inputs, targets in (
        (data.train_inputs, data.train_targets),
        (data.test_inputs, data.test_targets),
    ):
        assert inputs.dtype == torch.float32
        assert (inputs.min(), inputs.max()) == (0, 1)
        assert targets.dtype == torch.int64
        assert torch.allclose(targets.bincount() / len(targets), torch.tensor(0.1), atol=0.005)
    assert data.class_names == tuple("0123456789")
    assert data.facts["records"] == data.facts["train_size"] + data.facts["test_size"] == 1797


def test_split_follows_the_seed() -> None:
    first, again, other = (load_digits_data(settings(split_seed=seed)) for seed in (21, 21, 42))

    assert first.split_hash == again.split_hash != other.split_hash
    assert torch.equal(first.test_inputs, again.test_inputs)
