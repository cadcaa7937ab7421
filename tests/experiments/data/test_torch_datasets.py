"""Data sets from outside: torch Datasets as they are, and tensors that the suite splits."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, TensorDataset
from torchvision.datasets import FakeData
from torchvision.transforms.v2.functional import pil_to_tensor

from experiments.data.examples import ClassificationData
from experiments.data.torch_datasets import TorchDatasetModule, class_numbers
from experiments.errors import DataError
from tests.experiments.data.support import BATCHES


class Pairs(Dataset[Any]):
    """Pairs that a test gives; counts how many were read."""

    def __init__(self, *pairs: Any, **attributes: Any) -> None:
        self.pairs, self.read = pairs, 0
        vars(self).update(attributes)

    def __getitem__(self, index: int) -> Any:
        self.read += 1
        return self.pairs[index]

    def __len__(self) -> int:
        return len(self.pairs)


def images() -> FakeData:
    return FakeData(size=12, image_size=(3, 8, 8), num_classes=3)


def loaded(train: Any, test: Any, **arguments: Any) -> ClassificationData:
    module = TorchDatasetModule(train=train, test=test, **BATCHES | arguments)
    module.setup()
    return module.data


def read(examples: Any, *indices: int) -> torch.Tensor:
    return examples.read(torch.tensor(indices, dtype=torch.int64), torch.tensor(indices))[0]


def test_images_become_pixels_and_give_their_channels() -> None:
    data = loaded(images(), images())
    pixels = read(data.train, 3, 0)
    assert (pixels.shape, pixels.dtype) == ((2, 3, 8, 8), torch.uint8)
    assert torch.equal(pixels[0], pil_to_tensor(images()[3][0]))
    assert len(read(data.train)) == 0
    assert data.sizes == {"channels": 3}
    assert data.class_names == ("0", "1", "2")
    assert data.facts == {"train_size": 12, "test_size": 12}


def test_arrays_and_tensors_are_taken_and_rows_give_their_features() -> None:
    rows = torch.arange(12.0).reshape(4, 3)
    tensors = loaded(TensorDataset(rows, torch.tensor([0, 1, 1, 0])), TensorDataset(rows, torch.tensor([0, 0, 0, 1])))
    assert torch.equal(read(tensors.train, 2, 1), rows[[2, 1]])
    assert tensors.sizes == {"features": 3}
    arrays = Pairs(*((row, number) for row, number in zip(rows.numpy(), [0, 1, 1, 0], strict=True)))
    assert torch.equal(read(loaded(arrays, arrays).train, 2, 1), rows[[2, 1]])


def test_labels_are_taken_without_reading_where_the_dataset_lists_them() -> None:
    pairs = Pairs(([1.0], 1), ([2.0], 0), targets=[1, 0])
    assert class_numbers(pairs).tolist() == [1, 0]
    assert pairs.read == 0
    changed = Pairs(([1.0], 0), ([2.0], 1), targets=[1, 0], target_transform=lambda number: 1 - number)
    assert class_numbers(changed).tolist() == [0, 1]


@pytest.mark.parametrize("label", [0.5, [0, 1], True])
def test_labels_that_are_no_class_numbers_are_refused(label: object) -> None:
    with pytest.raises(DataError, match="must be a pair of an input and a class number"):
        class_numbers(Pairs(([1.0], label)))


def test_tensors_are_split_by_class_the_same_for_the_same_seed() -> None:
    inputs, targets = torch.arange(40.0).reshape(20, 2), torch.arange(20) % 2

    def split(**arguments: Any) -> ClassificationData:
        return ClassificationData.from_tensors(inputs, targets, np.array(["a", "b"]), **arguments)

    data = split(test_fraction=0.3)
    assert data.counts() == {"train_size": 14, "test_size": 6}
    assert data.test.targets.bincount().tolist() == [3, 3]
    assert data.class_names == ("a", "b")
    assert data.sizes == {"features": 2}
    rows = torch.cat([data.train.inputs, data.test.inputs])[:, 0].tolist()
    assert sorted(rows) == inputs[:, 0].tolist()
    assert torch.equal(data.test.inputs, split(test_fraction=0.3).test.inputs)
    assert not torch.equal(data.test.inputs, split(test_fraction=0.3, split_seed=1).test.inputs)
    assert split(sizes={"words": 3}).sizes == {"words": 3}
