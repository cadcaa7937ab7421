"""Data sets from outside: torch Datasets as they are, and tensors that the suite splits."""

import json
import random
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, TensorDataset
from torchvision.datasets import FakeData
from torchvision.transforms.v2.functional import pil_to_tensor

from experiments.data.examples import ClassificationData
from experiments.data.torch_datasets import DatasetExamples, TorchDatasetModule, class_numbers
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


def images():
    return FakeData(size=12, image_size=(3, 8, 8), num_classes=3)


def loaded(train, test, **arguments):
    module = TorchDatasetModule(train=train, test=test, **BATCHES | arguments)
    module.setup()
    return module.data


def read(examples, *indices):
    return examples.read(torch.tensor(indices, dtype=torch.int64), torch.tensor(indices))[0]


def test_images_become_pixels_and_give_their_channels():
    data = loaded(images(), images())
    pixels = read(data.train, 3, 0)
    assert (pixels.shape, pixels.dtype) == ((2, 3, 8, 8), torch.uint8)
    assert torch.equal(pixels[0], pil_to_tensor(images()[3][0]))
    assert len(read(data.train)) == 0
    assert data.sizes == {"channels": 3}
    assert data.class_names == ("0", "1", "2")
    assert data.facts == {"train_size": 12, "test_size": 12}


def test_arrays_and_tensors_are_taken_and_rows_give_their_features():
    rows = torch.arange(12.0).reshape(4, 3)
    tensors = loaded(TensorDataset(rows, torch.tensor([0, 1, 1, 0])), TensorDataset(rows, torch.tensor([0, 0, 0, 1])))
    assert torch.equal(read(tensors.train, 2, 1), rows[[2, 1]])
    assert tensors.sizes == {"features": 3}
    arrays = Pairs(*((row, number) for row, number in zip(rows.numpy(), [0, 1, 1, 0], strict=True)))
    assert torch.equal(read(loaded(arrays, arrays).train, 2, 1), rows[[2, 1]])


def test_labels_are_taken_without_reading_where_the_dataset_lists_them():
    pairs = Pairs(([1.0], 1), ([2.0], 0), targets=[1, 0])
    assert class_numbers(pairs).tolist() == [1, 0]
    assert pairs.read == 0
    changed = Pairs(([1.0], 0), ([2.0], 1), targets=[1, 0], target_transform=lambda number: 1 - number)
    assert class_numbers(changed).tolist() == [0, 1]


@pytest.mark.parametrize("label", [0.5, [0, 1], True])
def test_labels_that_are_no_class_numbers_are_refused(label):
    with pytest.raises(DataError, match="must be a pair of an input and a class number"):
        class_numbers(Pairs(([1.0], label)))


def test_tensors_are_split_by_class_the_same_for_the_same_seed():
    inputs, targets = torch.arange(40.0).reshape(20, 2), torch.arange(20) % 2

    def split(**arguments):
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


# The hash of the contents


class Noisy(Pairs):
    """The number of each example, moved by a shift, beside noise from every global generator."""

    def __init__(self, shift: float = 0.0) -> None:
        super().__init__(*enumerate([0, 1, 1, 0]), targets=[0, 1, 1, 0], shift=shift)

    def __getitem__(self, index: int) -> Any:
        number, label = super().__getitem__(index)
        noise = random.random() + np.random.rand() + float(torch.rand(()))  # noqa: NPY002
        return torch.tensor([number + self.shift, noise]), label


def test_random_transforms_change_no_hash_and_leave_the_generators_alone():
    examples = DatasetExamples(Noisy(), torch.tensor(Noisy().targets))
    states = json.dumps([random.getstate(), torch.get_rng_state().tolist()])
    assert examples.digest() == examples.digest()
    assert json.dumps([random.getstate(), torch.get_rng_state().tolist()]) == states
    numbers = torch.arange(4)
    inputs, _ = examples.read(numbers, seeds=numbers)
    for part in numbers.split(3):  # as another number of workers would read them
        assert torch.equal(examples.read(part, seeds=part)[0], inputs[part])
    before = loaded(Noisy(), Noisy()).content_hash
    assert loaded(Noisy(), Noisy()).content_hash == before
    others = loaded(Noisy(0.5), Noisy()).content_hash, loaded(Noisy(), Noisy(0.5)).content_hash
    assert len({before, *others}) == 3


def test_a_dataset_that_holds_its_data_is_not_read():
    def holding(array):
        return Pairs(([1.0], 0), ([1.0], 1), data=array, targets=[0, 1])

    array = np.arange(4).reshape(2, 2)
    held = holding(array)
    same = loaded(holding(torch.from_numpy(array)), held).content_hash
    assert loaded(held, held).content_hash == same != loaded(holding(array[::-1].copy()), held).content_hash
    assert held.read == 1  # one input, for its shape
