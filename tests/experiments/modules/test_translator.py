"""Translation under output activations: its loss, what is measured of it, and what it learns."""

import functools
import math
from pathlib import Path

import pytest
import torch
from sacrebleu import corpus_bleu, corpus_chrf
from torch import Tensor
from torch.nn.functional import cross_entropy

import sharmix
from experiments.composition import settings_of as settings
from experiments.data.special_tokens import BEGIN, END, PADDING
from experiments.modules.beam_search import Hypothesis
from experiments.modules.translation_metrics import SentenceMetrics, TokenMetrics
from experiments.modules.translator import Translator, next_probabilities
from experiments.run import Run
from tests.experiments.building import copies, stock_trainer

SMALL = ("experiment=copy", "data.train_size=200", "data.evaluation_size=20", "data.batch_size=100")


def translator(*overrides):
    module, _ = Run(settings(*SMALL, *overrides), Path()).build()
    assert isinstance(module, Translator)
    return module


@functools.cache
def batch(passes=1, turn=0):
    """The first training batch, or a pass of it."""
    data = copies(words=16, shortest=3, longest=8, train_size=200, evaluation_size=20, data_seed=21)
    data.trainer = stock_trainer(accumulate_grad_batches=passes)
    batches = list(data.train_dataloader())
    return batches[turn]


SHORTER = ("data.words=10", "data.longest=5", "data.train_size=4000", "data.evaluation_size=100", "data.batch_size=300")


@pytest.mark.medium
def test_copying_is_learned(tmp_path):
    asked = ("activation=sharmix_learned", *SHORTER, "optimizer.learning_rate=3e-3", "progress=none")
    record = Run(settings("experiment=copy", *asked, "trainer.max_epochs=8"), tmp_path / "run").complete().model_dump()
    assert record["metrics"]["test"]["exact_match"] >= 0.99
    assert record["metrics"]["test"]["sparsity"] > 0.5
    best = max(record["curves"], key=lambda row: row["dev/bleu"])
    assert record["selected_by"] == "dev/bleu"
    assert record["epoch"] == best["epoch"]
    assert record["metrics"]["test"]["bleu"] == best["test/bleu"]
    assert "tok:13a" in record["measured_by"]["bleu"]
    assert [row["steps"] for row in record["curves"]] == [70 * epoch for epoch in range(1, 9)]


def test_the_loss_is_that_of_the_next_tokens_without_padding():
    given = batch()
    for share in (0.0, 0.1):
        module = translator(f"module.label_smoothing={share}")
        module.eval()
        logits = module.network.logits(module.network(given.inputs, given.targets[:, :-1]))
        expected = cross_entropy(
            logits.flatten(0, 1), given.targets[:, 1:].flatten(), ignore_index=PADDING, label_smoothing=share
        )
        smoothed = torch.full((logits.shape[-1],), share / logits.shape[-1])
        smoothed[0] += 1 - share
        entropy = torch.special.xlogy(smoothed, smoothed).sum()  # which cross-entropy does not subtract
        torch.testing.assert_close(module.training_step(given, 0), expected + entropy)


ACTIVATIONS = ["sharmix_learned", *(pytest.param(name, marks=pytest.mark.medium) for name in ("softmax", "alpha_relu"))]


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_half_precision_trains_and_translates(activation):
    module, given = translator(f"activation={activation}", "attention=sharmix"), batch()
    expected = module.training_step(given, 0)
    of_dev = given._replace(indices=torch.arange(len(given.indices)) % 20, split="dev")  # of 20 sentences
    with torch.autocast("cpu", torch.bfloat16):
        loss = module.training_step(given, 0)
        loss.backward()
        module.validation_step(of_dev, 0)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, expected, rtol=0.05, atol=0.02)
    assert all(parameter.grad.isfinite().all() for parameter in module.network.parameters())
    assert 0 < module.take_metrics("dev")["loss"] < math.inf


def test_the_training_loss_is_a_mean_over_tokens():
    module = translator()
    module.eval()
    given, second = batch(), batch(passes=3, turn=1)
    tokens = [int((one.targets[:, 1:] != PADDING).sum()) for one in (given, second)]
    losses = [module.training_step(one, 0).item() / one.weight for one in (given, second)]
    expected = sum(loss * count for loss, count in zip(losses, tokens, strict=True)) / sum(tokens)
    assert module.take_metrics("train")["loss"].item() == pytest.approx(expected)
    module.training_step(second, 0)  # what was taken counts no more
    assert module.take_metrics("train")["loss"].item() == pytest.approx(losses[1])


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_part_of_a_batch_without_a_token_adds_nothing(activation):
    module, given = translator(f"activation={activation}"), batch()
    module.eval()
    module.activation.train()  # alpha-ReLU's threshold is learned, but nothing is dropped
    padding = given._replace(targets=torch.full_like(given.targets, PADDING), weight=0.0)
    loss = module.training_step(padding, 0)
    assert loss == 0
    loss.backward()
    assert all((parameter.grad == 0).all() for parameter in module.parameters() if parameter.grad is not None)
    expected = module.training_step(given, 0).item()
    assert module.take_metrics("train")["loss"].item() == pytest.approx(expected)


class Zeros(sharmix.Activation):
    """Not normalised: twice the positive part."""

    normalised = False

    def probabilities(self, logits: Tensor) -> Tensor:
        return 2 * logits.clamp_min(0)

    def entropy(self, probabilities: Tensor) -> Tensor:
        return -probabilities.square().sum(-1) / 4


def test_scores_of_an_activation_that_is_not_normalised():
    logits = torch.full((3, 7), -4.0)
    logits[:, [PADDING, BEGIN]] = torch.tensor([[3.0, 3.0], [-0.5, -0.5], [3.0, 3.0]])  # which never follow
    logits[0, 4], logits[0, 5], logits[1:, 6] = 1.0, 0.5, -1.0
    sums = torch.zeros(3, 7)
    sums[0, 4], sums[0, 5], sums[1:, 6] = 2.0, 1.0, 1.0
    torch.testing.assert_close(next_probabilities(Zeros(), logits, "raw"), sums)
    normalised = next_probabilities(Zeros(), logits, "normalised")
    torch.testing.assert_close(normalised, sums / torch.tensor([[3.0], [1.0], [1.0]]))
    softmax = sharmix.build_activation("softmax")
    assert torch.equal(next_probabilities(softmax, logits, "normalised"), softmax(logits))


@torch.no_grad()
@pytest.mark.parametrize("activation", ["alpha_relu", pytest.param("softmax", marks=pytest.mark.medium)])
def test_a_translation_is_scored_by_the_probabilities_of_its_tokens(activation):
    module = translator(f"activation={activation}", "activation.tau=0.1" if activation == "alpha_relu" else "seed=21")
    module.eval()
    source = batch().inputs[:4]
    found, empty = module.translate(source)

    def score(row, tokens):
        given = torch.tensor([[BEGIN, *tokens]])
        own = source[row : row + 1]
        logits = module.network.logits(module.network(own[own != PADDING][None], given))[0]
        p = next_probabilities(module.activation, logits, "normalised")
        return sum(math.log(p[place, token]) for place, token in enumerate([*tokens, END]))

    for row, hypothesis in enumerate(found):
        if hypothesis.score > -math.inf:
            assert hypothesis.score == pytest.approx(score(row, hypothesis.tokens), rel=1e-4)
        if empty[row] > -math.inf:
            assert empty[row].item() == pytest.approx(score(row, []), rel=1e-4)
        limit = int(1.5 * (source[row] != PADDING).sum()) + 10
        assert len(hypothesis.tokens) <= limit
        assert not {PADDING, BEGIN, END} & set(hypothesis.tokens)


def test_sentences_are_measured_as_sacrebleu_does():
    texts = ["a dog runs fast through the park", "two men are sleeping on a bench", ""]
    references = ["a dog runs fast through a park", "two men are sleeping on a bench", "a cat"]
    found = [Hypothesis([5, 6], -2.0), Hypothesis([7], -1.0), Hypothesis([], -0.5)]
    metrics = SentenceMetrics()
    metrics.update(torch.tensor([2, 0]), found[:2], texts[:2], references[:2], torch.tensor([-1.5, -math.inf]))
    metrics.update(torch.tensor([1]), found[2:], texts[2:], references[2:], torch.tensor([-0.4999]))
    measured = metrics.compute()
    assert measured["bleu"] == pytest.approx(corpus_bleu(texts, [references]).score)
    assert measured["chrf"] == pytest.approx(corpus_chrf(texts, [references]).score)
    assert measured["exact_match"] == pytest.approx(1 / 3)
    assert measured["empty_preferred"] == pytest.approx(1 / 3)  # what is empty already is not preferred to itself
    assert measured["empty_possible"] == pytest.approx(2 / 3)
    assert measured["unfinished"] == 0
    metrics.reset()
    unfinished = [Hypothesis([5], -math.inf)] * 2
    metrics.update(torch.tensor([0, 1]), unfinished, ["a", "a"], ["b", "b"], torch.tensor([-9.0, -math.inf]))
    assert (metrics.compute()["unfinished"], metrics.compute()["empty_preferred"]) == (1, 1 / 2)


def test_tokens_are_measured_over_the_vocabulary_and_over_the_types_in_use():
    metrics = TokenMetrics(torch.tensor([False, True, True, False, True]))
    p = torch.tensor([[0.0, 0.5, 0.0, 0.5, 0.0], [0.2, 0.2, 0.2, 0.2, 0.2], [0.0, 0.0, 1.0, 0.0, 0.0]])
    metrics.update(p, p, torch.tensor([1, 4, 1]), torch.tensor([1.0, 2.0, 6.0]))
    expected = {
        "loss": 3.0,
        "accuracy": 1 / 3,
        "sparsity": (3 / 5 + 0 + 4 / 5) / 3,
        "sparsity_in_use": (2 / 3 + 0 + 2 / 3) / 3,
        "support": (2 + 5 + 1) / 3,
        "coverage": 2 / 3,
        "zero_true": 1 / 3,
        "support_to_1": 1 / 3,
        "support_to_2": 2 / 3,
        "support_to_4": 2 / 3,
        "support_to_8": 1.0,
    }
    assert {name: value.item() for name, value in metrics.compute().items()} == pytest.approx(expected)


@pytest.mark.parametrize("attention", ["sharmix", pytest.param("entmax", marks=pytest.mark.medium)])
def test_every_learned_order_has_the_learning_rate_of_its_own(attention):
    module = translator("activation=sharmix_learned", f"attention={attention}", "optimizer.entropy_learning_rate=0.5")
    module.trainer = stock_trainer()
    network, entropy = module.configure_optimizers()["optimizer"].param_groups
    orders = [parameter for name, parameter in module.named_parameters() if name.endswith((".q", ".r", ".alpha"))]
    assert entropy["initial_lr"] == 0.5
    assert {id(parameter) for parameter in entropy["params"]} == {id(parameter) for parameter in orders}
    assert len(entropy["params"]) == len(orders) == 2 + 6 * (1 if attention == "entmax" else 2)
    assert len(network["params"]) + len(orders) == len(list(module.parameters()))
    name = "alpha" if attention == "entmax" else "r"
    assert f"decoder.1.cross_attention.head_3.{name}" in module.entropy_values()
