"""The batches of translations: in training of about as many target tokens each, of sentences of like length."""

import numpy as np
import pytest
import torch

from experiments.data.randomness import sample_seeds
from experiments.data.samplers import BatchDivision
from experiments.data.special_tokens import FIRST
from experiments.data.translation import SentencePairs, TokenBatchSampler
from experiments.errors import ConfigurationError
from tests.experiments.data.support import chosen, loaded, ready, trainer


@pytest.fixture(scope="module")
def pairs():
    return loaded("copy").train


def sampler_of(pairs, seed=5, epoch=0, tokens=60, division=None):
    found = TokenBatchSampler(pairs, tokens, seed, division or BatchDivision())
    found.set_epoch(epoch)
    return found


def test_an_epoch_takes_each_pair_once_in_batches_of_like_length(pairs):
    sampler = sampler_of(pairs)
    epoch = list(sampler)
    assert len(epoch) == len(sampler)
    assert sorted(torch.cat([batch.indices for batch in epoch]).tolist()) == list(range(300))
    lengths = [pairs.predicted_tokens()[batch.indices].numpy() for batch in epoch]
    longest = [own.max() for own in lengths]
    assert all(most * len(own) <= 60 for most, own in zip(longest, lengths, strict=True))  # with padding
    assert np.mean([np.ptp(own) for own in lengths]) < 1
    assert longest != sorted(longest)  # the order of the batches is random
    assert all(batch.weight == 1 for batch in epoch)


def test_an_epoch_is_a_function_of_seed_and_number(pairs):
    def order(seed, epoch):
        return [batch.indices.tolist() for batch in sampler_of(pairs, seed, epoch)]

    assert order(5, 1) == order(5, 1)
    assert order(5, 1) != order(5, 2)
    assert order(5, 1) != order(6, 1)
    sampler = sampler_of(pairs, 5, 1)
    list(sampler)
    sampler.set_epoch(2)
    assert [batch.indices.tolist() for batch in sampler] == order(5, 2)
    for batch in sampler:
        assert batch.seeds.equal(sample_seeds(5, 2, batch.indices))


def test_processes_and_passes_divide_each_batch_by_its_tokens(pairs):
    tokens = pairs.predicted_tokens()
    whole = list(sampler_of(pairs))
    for processes, passes in ((2, 2), (3, 1), (1, 3)):
        division = f"{processes} processes, {passes} passes"
        by_process = [sampler_of(pairs, division=BatchDivision(processes, own, passes)) for own in range(processes)]
        parts = [list(own) for own in by_process]
        divided = [batch for batch in whole if len(batch.indices) >= processes * passes]
        assert {len(own) for own in parts} == {len(own) for own in by_process} == {passes * len(divided)}, division
        for number, batch in enumerate(divided):
            own = [part[passes * number + turn] for turn in range(passes) for part in parts]
            assert sorted(torch.cat([part.indices for part in own]).tolist()) == sorted(batch.indices.tolist()), (
                division
            )
            # Lightning takes the mean over passes and processes.
            assert sum(part.weight for part in own) / (processes * passes) == pytest.approx(1), division
            for part in own:
                share = (tokens[part.indices].sum() / tokens[batch.indices].sum()).item()
                assert part.weight == pytest.approx(processes * passes * share), division


def test_a_batch_too_small_for_the_longest_sentence_is_refused(pairs):
    longest = int(pairs.predicted_tokens().max())
    for division, least in ((BatchDivision(), longest), (BatchDivision(2, 1, 3), 6 * longest)):
        sampler_of(pairs, tokens=least, division=division)
        with pytest.raises(ConfigurationError, match=f"data.batch_size={least - 1} is not allowed.*at least {least}"):
            sampler_of(pairs, tokens=least - 1, division=division)


def test_fewer_pairs_than_parts_of_a_step_are_refused():
    few = SentencePairs([[FIRST]] * 5, [[FIRST]] * 5, ["w"] * 5)
    assert len(list(sampler_of(few, tokens=600, division=BatchDivision(5)))) == 1
    with pytest.raises(ConfigurationError, match="5 training pairs are too few for 6 parts a step"):
        sampler_of(few, tokens=600, division=BatchDivision(3, 0, 2))


def test_measuring_takes_each_pair_once_the_shortest_first():
    data = ready("copy", batch_size=60)
    for split, loader in zip(("dev", "test"), data.val_dataloader(), strict=True):
        order = [index for batch in chosen(list(loader)) for index in batch]
        assert (getattr(data.data, split).sources.lengths[order].diff() >= 0).all(), split
        by_process = []
        for process in range(2):
            data.trainer = trainer(world_size=2, global_rank=process)
            by_process += [
                index for batch in data.val_dataloader()[split == "test"] for index in batch.indices.tolist()
            ]
        assert sorted(by_process) == sorted(order) == list(range(20)), split


def test_a_process_without_examples_to_measure_reads_an_empty_batch():
    data = ready("copy", batch_size=60)
    data.trainer = trainer(world_size=32, global_rank=31)  # of 20 pairs
    for loader in data.val_dataloader():
        assert [(batch.inputs.shape, batch.targets.shape) for batch in loader] == [((0, 0), (0, 0))]
