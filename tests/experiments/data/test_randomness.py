"""Random numbers that belong to an example."""

import numpy as np
import torch

from experiments.data.randomness import sample_seeds, uniform


def test_the_generator_is_splitmix64():
    # Its second, third and fourth outputs from the state 0, as Vigna's reference code gives them.
    expected = [0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC]
    state = torch.zeros(1, dtype=torch.int64)
    assert [uniform(state, stream).item() for stream in range(3)] == [(v >> 11) * 2.0**-53 for v in expected]


def test_a_seed_depends_on_training_seed_epoch_and_example():
    seeds = {
        (seed, epoch, index): value
        for seed in (0, 1, 21)
        for epoch in (0, 1, 2)
        for index, value in enumerate(sample_seeds(seed, epoch, torch.arange(1000)).tolist())
    }
    assert len(set(seeds.values())) == len(seeds)
    chosen = torch.tensor([7, 5])
    assert sample_seeds(21, 3, chosen).tolist() == [sample_seeds(21, 3, one).item() for one in chosen.split(1)]


def test_streams_and_neighbours_are_uncorrelated():
    seeds = sample_seeds(21, 0, torch.arange(20_000))
    columns = [uniform(seeds, 0), uniform(seeds, 1), uniform(seeds, 2), uniform(seeds.roll(1), 0)]
    columns.append(uniform(sample_seeds(21, 1, torch.arange(20_000)), 0))
    correlations = np.corrcoef(torch.stack(columns).numpy()) - np.eye(len(columns))
    assert abs(correlations).max() < 0.03
