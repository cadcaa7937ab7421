"""Which examples are drawn, in what shares, and how a batch is divided among processes and passes."""

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

from experiments.data.examples import InMemory
from experiments.data.randomness import sample_seeds
from experiments.data.samplers import Division, TrainingDraws, class_shares, loader, measuring_draws
from experiments.settings import SAMPLERS

COUNTS = np.array([1000, 100, 10])
TARGETS = np.repeat(np.arange(3), COUNTS)


def draws(sampler: str = "instance", size: int = 0, epoch: int = 0, **changes) -> TrainingDraws:
    targets = np.zeros(size, dtype=np.int64) if size else TARGETS
    arguments = {"batch_size": 64, "seed": 21, "epochs": 10, "steps": None, "division": Division()} | changes
    found = TrainingDraws(targets, sampler, **arguments)
    found.epoch = epoch
    return found


def indices(found: TrainingDraws) -> list[int]:
    return [index for draw in found for index in draw.indices.tolist()]


def test_the_instance_sampler_takes_each_example_once() -> None:
    assert sorted(indices(draws(size=640))) == list(range(640))


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_order_is_a_function_of_seed_and_epoch(sampler: str) -> None:
    assert indices(draws(sampler, epoch=3)) == indices(draws(sampler, epoch=3))
    assert indices(draws(sampler, epoch=3)) != indices(draws(sampler, epoch=4))
    assert indices(draws(sampler, epoch=3)) != indices(draws(sampler, epoch=3, seed=22))


@pytest.mark.parametrize(
    ("sampler", "epoch", "expected"),
    [
        ("instance", 0, [1000 / 1110, 100 / 1110, 10 / 1110]),
        ("class_balanced", 0, [1 / 3, 1 / 3, 1 / 3]),
        ("square_root", 0, np.sqrt(COUNTS) / np.sqrt(COUNTS).sum()),
        ("progressive", 0, COUNTS / COUNTS.sum()),
        ("progressive", 9, [1 / 3, 1 / 3, 1 / 3]),
        ("progressive", 3, COUNTS / COUNTS.sum() * 2 / 3 + np.array([1, 1, 1]) / 3 / 3),
    ],
)
def test_classes_are_drawn_in_their_shares(sampler: str, epoch: int, expected: np.ndarray) -> None:
    drawn = [index for seed in range(30) for index in indices(draws(sampler, epoch=epoch, seed=seed))]
    shares = np.bincount(TARGETS[drawn], minlength=3) / len(drawn)
    # five standard deviations of a share estimated from some 33,000 draws
    np.testing.assert_allclose(shares, expected, rtol=0, atol=5 * 0.5 / np.sqrt(len(drawn)))


@pytest.mark.parametrize("sampler", ["class_balanced", "square_root"])
def test_within_a_class_every_example_is_drawn_alike(sampler: str) -> None:
    drawn = [index for seed in range(200) for index in indices(draws(sampler, seed=seed))]
    times = np.bincount(drawn, minlength=len(TARGETS))[-10:]
    assert times.min() > 0.8 * times.mean()
    assert times.max() < 1.2 * times.mean()


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=20), st.sampled_from(SAMPLERS), st.floats(0, 1))
def test_shares_sum_to_one_and_never_favour_the_smaller_class(counts: list[int], sampler: str, progress: float) -> None:
    shares = class_shares(sampler, np.array(counts), progress)
    assert shares.sum() == pytest.approx(1)
    by_count = shares[np.argsort(counts)]
    assert (np.diff(by_count) >= -1e-12).all()


@given(st.integers(1, 400), st.integers(1, 3), st.integers(1, 3), st.sampled_from(SAMPLERS))
def test_processes_and_passes_share_each_batch_without_overlap(
    size: int, processes: int, passes: int, sampler: str
) -> None:
    whole = list(draws(sampler, size, batch_size=18))
    parts = [
        list(draws(sampler, size, batch_size=18, division=Division(processes, process, passes)))
        for process in range(processes)
    ]
    assert len({len(part) for part in parts}) == 1  # all take the same number of steps
    steps = len(parts[0]) // passes
    # A rest too small for every pass is left out.
    left_out = len(whole) - steps
    assert left_out == (0 < size % 18 < 2 * processes * passes) - (0 < size % 18 < 2)
    for step in range(steps):
        shared = [part[step * passes + turn] for part in parts for turn in range(passes)]
        assert sorted(i for draw in shared for i in draw.indices.tolist()) == sorted(whole[step].indices.tolist())
        assert min(len(draw.indices) for draw in shared) >= 2
        assert sum(draw.weight for draw in shared) == pytest.approx(processes)
        for draw in shared:
            assert draw.weight == pytest.approx(processes * len(draw.indices) / len(whole[step].indices))


def test_an_epoch_can_be_cut_short() -> None:
    assert len(list(draws(size=640, steps=3))) == 3
    assert indices(draws(size=640, steps=3)) == indices(draws(size=640))[: 3 * 64]


@given(st.integers(0, 50), st.integers(1, 4))
def test_measuring_covers_all_examples_once(size: int, processes: int) -> None:
    found = [
        index
        for process in range(processes)
        for draw in measuring_draws(size, 7, Division(processes, process))
        for index in draw.indices.tolist()
    ]
    assert sorted(found) == list(range(size))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_gives_the_examples_drawn_with_their_own_seeds(workers: int) -> None:
    examples = InMemory(torch.arange(100) * 10, torch.arange(100) % 3)
    chosen = draws(size=100, batch_size=32, epoch=5)
    batches = list(loader(examples, chosen, workers=workers, pin_memory=False))
    seeds = {}
    for draw, batch in zip(chosen, batches, strict=True):
        assert batch.inputs.tolist() == [10 * index for index in draw.indices.tolist()]
        assert batch.targets.tolist() == [index % 3 for index in draw.indices.tolist()]
        seeds |= dict(zip(draw.indices.tolist(), batch.seeds.tolist(), strict=True))
    assert len(set(seeds.values())) == 100
    assert [seeds[index] for index in range(100)] == sample_seeds(21, 5, torch.arange(100)).tolist()


def test_an_example_drawn_again_in_an_epoch_has_another_seed() -> None:
    found = [seed for draw in draws("class_balanced") for seed in draw.seeds.tolist()]
    assert len(set(indices(draws("class_balanced")))) < len(TARGETS)
    assert len(set(found)) == len(found)
