"""The study of lengths: its problems against what they promise, its decoder against a slow one, and a short run."""

from functools import partial

import pandas as pd
import pytest
import torch

import sharmix
from studies.decoder import Decoder, SelfAttention
from studies.length_generalisation import METRICS, PROBLEMS
from studies.sequences import FILLER, UNASKED, copying, drawn_batches, recall
from studies.study import load_study


def test_copying_asks_for_the_string_again():
    tokens, targets = copying(50, 20, torch.Generator().manual_seed(0), letters=5)
    for sequence, asked in zip(tokens.tolist(), targets.tolist(), strict=True):
        string, copied = sequence[:10], [token for token in asked if token != UNASKED]
        assert copied == string
        assert sequence[10:] == [FILLER, *string[:9]]
        assert asked[:10] == [UNASKED] * 10
    assert {*tokens.flatten().tolist()} == {*range(6)}


def test_recall_asks_for_the_value_of_each_key_once():
    tokens, targets = recall(50, 32, torch.Generator().manual_seed(0), keys=9, values=4)
    for sequence, asked in zip(tokens.tolist(), targets.tolist(), strict=True):
        values = dict(zip(sequence[0:16:2], sequence[1:16:2], strict=True))
        assert len(values) == 8  # all keys differ
        assert {*values} <= {*range(1, 10)}
        assert {*values.values()} <= {*range(10, 14)}
        assert sorted(sequence[16::2]) == sorted(values)
        assert asked[16::2] == [values[key] for key in sequence[16::2]]
        assert asked[:16] == [UNASKED] * 16
        assert asked[17::2] == [UNASKED] * 8
        assert sequence[17::2] == [FILLER] * 8


def test_a_batch_depends_on_seed_and_number_alone():
    draw = partial(recall, keys=9, values=4)
    numbers_and_seeds = (20, 0), (10, 0), (20, 1)
    first, again, other = ([*drawn_batches(draw, [16, 32], 3, number, seed)] for number, seed in numbers_and_seeds)
    assert all(torch.equal(ours, theirs) for (ours, _), (theirs, _) in zip(first[:10], again, strict=True))
    assert {tokens.shape for tokens, _ in first} == {(3, 16), (3, 32)}
    assert not all(torch.equal(ours, theirs) for (ours, _), (theirs, _) in zip(first, other, strict=True))


@pytest.mark.parametrize("same_scale_at", [None, 7])
def test_attention_is_that_of_loops(same_scale_at):
    torch.manual_seed(0)
    heads, length, dimension = 4, 6, 8
    activation = sharmix.Entmax(alpha=1.5)
    [layer] = Decoder(
        vocabulary_size=5, layers=1, dimension=dimension, heads=heads, feedforward=4, activation=activation,
        same_scale_at=same_scale_at,
    ).double().layers  # fmt: skip
    attention: SelfAttention = layer.attention
    states = torch.randn(1, length, dimension, dtype=torch.float64)
    query, key, value = attention.inputs(states)[0].view(length, 3, heads, 2).unbind(1)
    slopes = (1.0, 0.5, 0.0, 0.0)
    gathered = torch.zeros(length, heads, 2, dtype=torch.float64)
    for head, slope in enumerate(slopes):
        for i in range(length):
            growth = (
                1.0
                if slope or same_scale_at is None
                else torch.log(torch.tensor(i + 2.0)) / torch.log(torch.tensor(8.0))
            )
            scores = [growth * query[i, head] @ key[j, head] / 2**0.5 - slope * (i - j) for j in range(i + 1)]
            weights = activation(torch.stack(scores))
            gathered[i, head] = weights @ value[: i + 1, head]
    torch.testing.assert_close(attention(states)[0], attention.output(gathered.flatten(1)), rtol=1e-6, atol=1e-6)


@pytest.mark.medium
def test_a_short_run_through_the_public_door(tmp_path, monkeypatch):
    study = load_study("length_generalisation")
    settings = study.settings | {
        "seeds": [0, 1],
        "problems": {"copy": {"letters": 16}, "recall": {"keys": 8, "values": 4}},
        "network": {"layers": 1, "dimension": 8, "heads": 2, "feedforward": 8},
        "training": study.settings["training"] | {"lengths": [8, 16], "examples": 2, "steps": 2},
        "test": study.settings["test"] | {"lengths": [16, 32], "tokens": 64, "examples": 2},
    }
    every = study.tasks(settings, None)
    assert len(every) == 2 * len(PROBLEMS) * len(settings["contenders"])
    records = pd.DataFrame([{**task, **row} for task in every for row in study.measure(task, settings, None)])
    assert len(records) == len(every) * len(METRICS) * 2
    assert records["value"].between(0, 1).all()
    report = study.report(records, settings, study.shown)
    assert len(report.findings) == len(PROBLEMS) * len(study.shown["found"])
    assert {*report.tables} >= {"copy: accuracy by length", "recall: accuracy less that of softmax"}
