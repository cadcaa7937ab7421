"""What every data module promises: batches that know their split, the same in any process."""

import lightning.pytorch as L
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from experiments.data.examples import Batch, InMemory
from experiments.data.randomness import sample_seeds
from experiments.data.samplers import BatchDivision, TrainingSampler
from experiments.errors import ConfigurationError, DataError
from tests.experiments.building import stock_trainer
from tests.experiments.data.support import SmallDataModule, chosen, epochs, small, small_data, trainer

# The split of each batch


@pytest.mark.parametrize(
    ("train_metrics", "fraction", "training", "evaluated"),
    [
        ("evaluated", 0.0, None, ("train", "test")),
        ("evaluated", 0.2, None, ("train", "validation", "test")),
        ("running", 0.0, "train", ("test",)),
        ("running", 0.2, "train", ("validation", "test")),
    ],
)
def test_every_batch_carries_the_split_whose_metrics_count_it(train_metrics, fraction, training, evaluated):
    data = small(train_metrics=train_metrics, validation_fraction=fraction)
    assert data.evaluated == evaluated
    loaders = [data.train_dataloader(), *data.val_dataloader(), data.test_dataloader(), data.predict_dataloader()]
    assert [{batch.split for batch in loader} for loader in loaders] == [
        {split} for split in (training, *evaluated, "test", "test")
    ]


def test_evaluation_reads_each_example_of_its_split_once_in_order():
    data = small(validation_fraction=0.2)
    whole = data.val_dataloader()
    for split, loader in zip(data.evaluated, whole, strict=True):
        batches = list(loader)
        size = len(getattr(data.data, split).targets)
        assert [index for batch in chosen(batches) for index in batch] == list(range(size)), split
        assert {len(batch.targets) for batch in batches[:-1]} <= {7}, split
        data.trainer = trainer(world_size=2, global_rank=1, accumulate_grad_batches=3)
        halves = chosen(list(data.val_dataloader()[data.evaluated.index(split)]))
        assert [index for batch in halves for index in batch] == list(range(1, size, 2)), split


# Training batches


def test_batches_hold_the_examples_drawn_with_their_own_seeds():
    for epoch, batches in enumerate(epochs(small(), 2)):
        for batch in batches:
            assert batch.inputs.flatten().tolist() == [10 * index for index in batch.indices.tolist()]
            assert batch.targets.tolist() == [index % 3 for index in batch.indices.tolist()]
            assert batch.seeds.tolist() == sample_seeds(21, epoch, batch.indices).tolist()


def test_the_trainer_says_how_steps_are_divided():
    data = small()
    data.trainer = trainer(world_size=2, global_rank=1, accumulate_grad_batches=3)
    division = BatchDivision(processes=2, process=1, passes=3)
    expected = TrainingSampler(data.data.train.targets.numpy(), "instance", 12, 21, 3, division)
    assert chosen(list(data.train_dataloader())) == chosen(list(expected))


def test_the_progressive_sampler_alone_needs_the_number_of_epochs():
    for sampler in ("instance", "square_root", "class_balanced"):
        data = small(sampler=sampler)
        data.trainer.max_epochs = -1  # as where max_steps ends the training
        assert len(epochs(data, 3)[2]) == 3, sampler
    data = small(sampler="progressive")
    assert len(epochs(data, 3)[2]) == 3
    data.trainer.max_epochs = -1
    with pytest.raises(ConfigurationError, match=r"data\.sampler=progressive .* trainer\.max_epochs=-1"):
        data.train_dataloader()


def test_memory_is_pinned_for_a_gpu_alone_and_workers_live_for_all_epochs():
    for device, pinned in (("cpu", False), ("cuda", True)):
        for workers in (0, 2):
            data = small(device=device, num_workers=workers)
            loaders = [data.train_dataloader(), *data.val_dataloader(), data.test_dataloader()]
            assert getattr(loaders[0], "persistent_workers", False) == (workers > 0)
            found = {getattr(loader, "pin_memory", False) for loader in loaders}
            assert found == {pinned}, f"{device}, {workers} workers"


def test_a_batch_moves_to_a_device_as_a_whole():
    (batch, *_), _ = epochs(small(), 2)
    moved = batch.to(torch.device("meta"))
    assert (moved.inputs.device.type, moved.targets.device.type, moved.seeds.device.type) == ("meta",) * 3
    assert moved[4:] == batch[4:]


def test_augmentation_changes_training_batches_alone():
    data = small(small_data(augment=lambda inputs, seeds: inputs + seeds[:, None]))
    batch = next(iter(data.train_dataloader()))
    changed = data.on_after_batch_transfer(batch, 0)
    assert torch.equal(changed.inputs, batch.inputs + batch.seeds[:, None])
    assert changed[1:] == batch[1:]
    data.trainer.training = False
    assert data.on_after_batch_transfer(batch, 0) is batch
    assert small().on_after_batch_transfer(batch, 0) is batch


# Data that cannot be used


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize(
    "targets", [torch.tensor([0, 2, -1]), torch.tensor([0, 2, 3]), torch.zeros(0, dtype=torch.int64)]
)
def test_targets_must_be_class_numbers(split, targets):
    data = SmallDataModule(small_data(**{split: InMemory(torch.zeros(len(targets), 1), targets)}))
    with pytest.raises(DataError, match=f"SmallDataModule, {split}: .* 3 class names allow the class numbers 0 to 2"):
        data.setup()


def test_facts_that_no_record_can_hold_are_refused_before_the_training():
    with pytest.raises((TypeError, ValueError), match="JSON"):
        SmallDataModule(small_data(facts={"size": 31, "mine": np.float32(1)})).setup()


# With Lightning's own Trainer


class Recorder(L.LightningModule):
    """A linear model that remembers the batches that it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 3)
        nn.init.zeros_(self.layer.weight)
        nn.init.zeros_(self.layer.bias)
        self.trained: list[list[list[int]]] = []
        self.evaluated: list[str | None] = []

    def on_train_epoch_start(self) -> None:
        self.trained.append([])

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        self.trained[-1].append(batch.indices.tolist())
        losses = nn.functional.cross_entropy(self.layer(batch.inputs / 100), batch.targets)
        return losses * batch.weight

    def validation_step(self, batch: Batch, batch_idx: int, dataloader_idx: int = 0) -> None:
        self.evaluated.append(batch.split)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=1.0)


@pytest.mark.medium
def test_lightnings_own_trainer_reads_an_epoch_in_its_own_order_and_goes_on_with_the_next(tmp_path):
    expected = small(validation_fraction=0.2)
    orders = [chosen(epoch) for epoch in epochs(expected, 3)]
    sizes = [len(loader) for loader in expected.val_dataloader()]
    one_epoch = [split for split, size in zip(expected.evaluated, sizes, strict=True) for _ in range(size)]
    for workers in (0, 2):  # workers read ahead
        data = {"validation_fraction": 0.2, "num_workers": workers}
        first, resumed = Recorder(), Recorder()
        begun = stock_trainer(max_epochs=1, num_sanity_val_steps=0)
        begun.fit(first, datamodule=SmallDataModule(**data))
        begun.save_checkpoint(tmp_path / "last.ckpt")
        going_on = stock_trainer(max_epochs=3, num_sanity_val_steps=0)
        going_on.fit(resumed, datamodule=SmallDataModule(**data), ckpt_path=tmp_path / "last.ckpt")
        assert [*first.trained, *resumed.trained] == orders, f"{workers} workers"
        assert first.evaluated * 3 == one_epoch * 3 == first.evaluated + resumed.evaluated, f"{workers} workers"
