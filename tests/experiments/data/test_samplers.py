"""Which examples are drawn, in what shares, and how a batch is divided among processes and passes."""

from typing import get_args

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

from experiments.data.samplers import BatchDivision, ClassSampler, TrainingSampler, class_shares, evaluation_batches
from experiments.errors import ConfigurationError

SAMPLERS = get_args(ClassSampler)
COUNTS = np.array([1000, 100, 10])
TARGETS = np.repeat(np.arange(3), COUNTS)


def sampler_of(sampler="instance", size=0, epoch=0, **changes):
    targets = np.zeros(size, dtype=np.int64) if size else TARGETS
    arguments = {"batch_size": 64, "seed": 21, "epochs": 10, "division": BatchDivision()} | changes
    found = TrainingSampler(targets, sampler, **arguments)
    found.set_epoch(epoch)
    return found


def indices(batches):
    return [index for batch in batches for index in batch.indices.tolist()]


def seeded(batch):
    return list(zip(batch.indices.tolist(), batch.seeds.tolist(), strict=True))


def test_the_instance_sampler_takes_each_example_once():
    assert sorted(indices(sampler_of(size=640))) == list(range(640))


def test_the_order_is_a_function_of_seed_and_epoch():
    for sampler in SAMPLERS:
        found = sampler_of(sampler, epoch=3)
        third = indices(found)
        assert third == indices(found) == indices(sampler_of(sampler, epoch=3)), sampler
        found.set_epoch(4)
        assert indices(found) == indices(sampler_of(sampler, epoch=4)) != third, sampler
        assert indices(sampler_of(sampler, epoch=3)) != indices(sampler_of(sampler, epoch=3, seed=22)), sampler


def test_classes_are_drawn_in_their_shares():
    for sampler, epoch, expected in (
        ("instance", 0, [1000 / 1110, 100 / 1110, 10 / 1110]),
        ("class_balanced", 0, [1 / 3, 1 / 3, 1 / 3]),
        ("square_root", 0, np.sqrt(COUNTS) / np.sqrt(COUNTS).sum()),
        ("progressive", 0, COUNTS / COUNTS.sum()),
        ("progressive", 9, [1 / 3, 1 / 3, 1 / 3]),
        ("progressive", 3, COUNTS / COUNTS.sum() * 2 / 3 + np.array([1, 1, 1]) / 3 / 3),
    ):
        drawn = [index for seed in range(30) for index in indices(sampler_of(sampler, epoch=epoch, seed=seed))]
        shares = np.bincount(TARGETS[drawn], minlength=3) / len(drawn)
        # five standard deviations of a share estimated from some 33,000 draws
        atol = 5 * 0.5 / np.sqrt(len(drawn))
        np.testing.assert_allclose(shares, expected, rtol=0, atol=atol, err_msg=f"{sampler}, epoch {epoch}")


@pytest.mark.medium
def test_within_a_class_every_example_is_drawn_alike():
    for sampler in ("class_balanced", "square_root"):
        drawn = [index for seed in range(200) for index in indices(sampler_of(sampler, seed=seed))]
        times = np.bincount(drawn, minlength=len(TARGETS))[-10:]
        assert times.min() > 0.8 * times.mean(), sampler
        assert times.max() < 1.2 * times.mean(), sampler


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=20), st.sampled_from(SAMPLERS), st.floats(0, 1))
def test_shares_sum_to_one_and_never_favour_the_smaller_class(counts, sampler, progress):
    shares = class_shares(sampler, np.array(counts), progress)
    assert shares.sum() == pytest.approx(1)
    by_count = shares[np.argsort(counts)]
    assert (np.diff(by_count) >= -1e-12).all()


@given(st.integers(1, 400), st.integers(1, 3), st.integers(1, 3), st.sampled_from(SAMPLERS))
def test_processes_and_passes_share_each_batch_without_overlap(size, processes, passes, sampler):
    parts = processes * passes
    if size < 2 * parts:
        with pytest.raises(ConfigurationError, match=f"{size} training examples are too few for {parts} parts a step"):
            sampler_of(sampler, size, batch_size=36, division=BatchDivision(processes, 0, passes))
        return
    whole = list(sampler_of(sampler, size, batch_size=36))
    by_process = [
        sampler_of(sampler, size, batch_size=36, division=BatchDivision(processes, process, passes))
        for process in range(processes)
    ]
    batches = [list(own) for own in by_process]
    assert {len(own) for own in batches} == {len(own) for own in by_process}  # all take the same number of steps
    steps = len(batches[0]) // passes
    # A rest too small for every pass is left out.
    left_out = len(whole) - steps
    assert left_out == (0 < size % 36 < 2 * parts) - (0 < size % 36 < 2)
    for step in range(steps):
        shared = [own[step * passes + turn] for own in batches for turn in range(passes)]
        assert sorted(i for part in shared for i in part.indices.tolist()) == sorted(whole[step].indices.tolist())
        assert min(len(part.indices) for part in shared) >= 2
        # Lightning takes the mean over passes and processes.
        assert sum(part.weight for part in shared) / parts == pytest.approx(1)
        for part in shared:
            assert part.weight == pytest.approx(parts * len(part.indices) / len(whole[step].indices))
        assert sorted(pair for part in shared for pair in seeded(part)) == sorted(seeded(whole[step]))


def test_a_batch_that_cannot_be_divided_is_refused():
    for batch_size, division in (
        (63, BatchDivision(2)),
        (64, BatchDivision(3)),
        (64, BatchDivision(2, 1, 3)),
        (1, BatchDivision()),
        (6, BatchDivision(2, 0, 2)),
        (4, BatchDivision(1, 0, 4)),
    ):
        said = rf"data\.batch_size={batch_size} is not allowed.*trainer\.accumulate_grad_batches = {division.parts}, "
        with pytest.raises(ConfigurationError, match=said):
            sampler_of(batch_size=batch_size, division=division)


@given(st.integers(0, 50), st.integers(1, 4))
def test_measuring_covers_all_examples_once_in_order(size, processes):
    order = torch.arange(size).flip(0)
    batches = [evaluation_batches(order, 7, BatchDivision(processes, process, 3)) for process in range(processes)]
    found = [[index for batch in own for index in batch.indices.tolist()] for own in batches]
    assert sorted(index for own in found for index in own) == list(range(size))
    assert found == [order[process::processes].tolist() for process in range(processes)]
    assert all(len(batch.indices) <= 7 and batch.weight == 1 for own in batches for batch in own)


def test_an_example_drawn_again_in_an_epoch_has_another_seed():
    found = [seed for batch in sampler_of("class_balanced") for seed in batch.seeds.tolist()]
    assert len(set(indices(sampler_of("class_balanced")))) < len(TARGETS)
    assert len(set(found)) == len(found)
