"""The digits that ship with scikit-learn, as a classification data set."""

import torch

from tests.experiments.data.support import loaded


def test_digits_are_scaled_pixels_with_every_class_on_both_sides() -> None:
    data = loaded("digits")
    for split, size in ((data.train, 1438), (data.test, 359)):
        assert (split.inputs.shape, split.inputs.dtype) == ((size, 64), torch.float32)
        assert (split.inputs.min(), split.inputs.max()) == (0, 1)
        assert split.targets.dtype == torch.int64
        assert torch.allclose(split.targets.bincount() / size, torch.tensor(0.1), atol=0.005)
    assert data.class_names == tuple("0123456789")
    assert data.facts["records"] == data.facts["train_size"] + data.facts["test_size"] == 1797
