"""Translation under output activations: its loss, what is measured of it, and what it learns."""

import math
from pathlib import Path

import pytest
import torch
from experiments.tasks import build_activation, build_feed, build_learner, load_data
from hydra import compose, initialize_config_dir
from sacrebleu import corpus_bleu, corpus_chrf
from torch import Tensor
from torch.nn.functional import cross_entropy

import sharmix
from experiments.data.examples import Batch, Reader
from experiments.data.samplers import Division
from experiments.data.special_tokens import BEGIN, END, FIRST, PADDING
from experiments.data.token_batches import TokenDraws
from experiments.job import perform
from experiments.modules.beam_search import Hypothesis
from experiments.modules.optimizer import learning_rate_schedule
from experiments.modules.translation_metrics import SentenceMetrics, TokenMetrics
from experiments.modules.translator import Translator, next_probabilities
from experiments.settings import ConfigurationError, RunSettings, register, typed
from tests.test_run import only_record, run

CONF = Path(__file__).resolve().parent.parent / "conf"
SMALL = ("data.train_size=200", "data.evaluation_size=20", "trainer.batch_size=100")


def composed(*overrides: str) -> RunSettings:
    register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return typed(compose("config", overrides=list(overrides)))


def settings(*overrides: str) -> RunSettings:
    return composed("experiment=copy", *SMALL, *overrides)


def translator(*overrides: str) -> Translator:
    asked = settings(*overrides)
    torch.manual_seed(0)
    learner = build_learner(asked, load_data(asked.data, None), build_activation(asked.activation))
    assert isinstance(learner, Translator)
    return learner


def batch(passes: int = 1, turn: int = 0) -> Batch:
    """The first training batch, or a pass of it."""
    pairs = load_data(settings().data, None).train
    draws = list(TokenDraws(pairs, 100, 0, None, Division(passes=passes)))
    return Reader(pairs)[draws[turn]]


@pytest.mark.parametrize("activation", ["alpha_relu", "sharmix_learned"])
def test_copying_is_learned_in_less_than_a_minute(activation: str, tmp_path: Path) -> None:
    status, printed = run(tmp_path / "outputs", "experiment=copy", f"activation={activation}")
    assert status == 0, printed
    record = only_record(tmp_path / "outputs")
    assert record["metrics"]["test"]["exact_match"] >= 0.99
    assert record["metrics"]["test"]["sparsity"] > 0.5
    assert record["wall_time_seconds"] < 60
    best = max(record["curves"], key=lambda row: row["dev/bleu"])
    assert record["selected_by"] == "dev/bleu"
    assert record["epoch"] == best["epoch"]
    assert record["metrics"]["test"]["bleu"] == best["test/bleu"]
    assert "tok:13a" in record["measured_by"]["bleu"]
    assert [row["steps"] for row in record["curves"]] == [89 * epoch for epoch in range(1, 8)]
    if activation == "alpha_relu":
        assert len({row["tau"] for row in record["curves"]}) == 1


def test_two_processes_train_as_one_and_a_record_tells_the_orders_of_every_head(tmp_path: Path) -> None:
    status, printed = run(
        tmp_path / "outputs", "experiment=copy", "attention=sharmix", *SMALL, "trainer.epochs=2", "trainer.devices=2"
    )
    assert status == 0, printed
    record = only_record(tmp_path / "outputs")
    status, printed = run(tmp_path / "alone", "experiment=copy", "attention=sharmix", *SMALL, "trainer.epochs=2")
    assert status == 0, printed
    for split, metrics in only_record(tmp_path / "alone")["metrics"].items():
        assert record["metrics"][split] == pytest.approx(metrics, rel=0.01, abs=0.05)
    last = record["curves"][-1]
    places = ["encoder.{}.self_attention", "decoder.{}.self_attention", "decoder.{}.cross_attention"]
    orders = {
        order: [
            last[f"{place.format(layer)}.head_{head}.{order}"]
            for place in places
            for layer in (0, 1)
            for head in range(4)
        ]
        for order in ("q", "r")
    }
    for order, start in (("q", 1.25), ("r", 1.5)):
        assert len(set(orders[order])) > 4
        assert all(value != start and 1.01 <= value < 2 for value in orders[order])


def test_the_loss_is_that_of_the_next_tokens_without_padding() -> None:
    learner, given = translator(), batch()
    learner.eval()
    logits = learner.model.logits(learner.model(given.inputs, given.targets[:, :-1]))
    expected = cross_entropy(logits.flatten(0, 1), given.targets[:, 1:].flatten(), ignore_index=PADDING)
    torch.testing.assert_close(learner.training_step(given), expected)


def test_label_smoothing_reaches_the_loss() -> None:
    plain, smooth, given = translator(), translator("trainer.label_smoothing=0.1"), batch()
    logits = plain.model.logits(plain.model(given.inputs, given.targets[:, :-1]))
    wanted = given.targets[:, 1:]
    real = wanted != PADDING
    for learner, share in ((plain, 0.0), (smooth, 0.1)):
        expected = learner.activation.loss(logits[real], wanted[real], label_smoothing=share)
        torch.testing.assert_close(learner.training_step(given), expected)
    assert smooth.training_step(given) != plain.training_step(given)


def test_label_smoothing_reaches_a_classifier_too() -> None:
    register()
    found = {}
    with initialize_config_dir(str(CONF), version_base="1.3"):
        for share in (0.0, 0.2):
            asked = typed(compose("config", overrides=["experiment=digits", f"trainer.label_smoothing={share}"]))
            data = load_data(asked.data, None)
            torch.manual_seed(0)
            learner = build_learner(asked, data, build_activation(asked.activation))
            given = next(iter(build_feed(asked, data, 1, 0, pin_memory=False).training))
            expected = cross_entropy(learner.model(given.inputs), given.targets, label_smoothing=share)
            soft = torch.full((10,), share / 10) + torch.nn.functional.one_hot(torch.tensor(0), 10) * (1 - share)
            found[share] = learner.training_step(given)
            torch.testing.assert_close(found[share], expected + torch.special.xlogy(soft, soft).sum())
    assert found[0.0] != found[0.2]


@pytest.mark.parametrize("activation", ["softmax", "alpha_relu", "sharmix_learned"])
def test_half_precision_trains_and_translates(activation: str) -> None:
    learner, given = translator(f"activation={activation}", "attention=sharmix"), batch()
    expected = learner.training_step(given)
    with torch.autocast("cpu", torch.bfloat16):
        loss = learner.training_step(given)
        loss.backward()
        learner.validation_step(given._replace(indices=torch.arange(len(given.indices)) % 20), "dev")
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, expected, rtol=0.05, atol=0.02)
    assert all(parameter.grad.isfinite().all() for parameter in learner.model.parameters())


def test_passes_add_up_to_the_gradient_of_the_batch() -> None:
    gradients = []
    for passes in (1, 3):
        learner = translator("activation=sparsemax")
        for turn in range(passes):
            learner.training_step(batch(passes, turn)).backward()
        gradients.append([parameter.grad for parameter in learner.model.parameters()])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_the_training_loss_is_a_mean_over_tokens() -> None:
    learner = translator()
    learner.eval()
    given, second = batch(), batch(passes=3, turn=1)
    tokens = [int((one.targets[:, 1:] != PADDING).sum()) for one in (given, second)]
    losses = [learner.training_step(one).item() / one.weight for one in (given, second)]
    for split in ("dev", "test"):
        learner.validation_step(batch()._replace(indices=torch.arange(len(given.indices)) % 20), split)
    expected = sum(loss * count for loss, count in zip(losses, tokens, strict=True)) / sum(tokens)
    assert learner.epoch_metrics()["train/loss"] == pytest.approx(expected)


class Zeros(sharmix.Activation):
    """Not normalised: twice the positive part."""

    normalised = False

    def map(self, logits: Tensor) -> Tensor:
        return 2 * logits.clamp_min(0)

    def entropy(self, probabilities: Tensor) -> Tensor:
        return -probabilities.square().sum(-1) / 4


def test_scores_of_an_activation_that_is_not_normalised() -> None:
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
@pytest.mark.parametrize("activation", ["softmax", "alpha_relu"])
def test_a_translation_is_scored_by_the_probabilities_of_its_tokens(activation: str) -> None:
    learner = translator(f"activation={activation}", "activation.tau=0.1" if activation == "alpha_relu" else "seed=21")
    learner.eval()
    source = batch().inputs[:4]
    found, empty = learner.translate(source)

    def score(row: int, tokens: list[int]) -> float:
        given = torch.tensor([[BEGIN, *tokens]])
        own = source[row : row + 1]
        logits = learner.model.logits(learner.model(own[own != PADDING][None], given))[0]
        p = next_probabilities(learner.activation, logits, "normalised")
        return sum(math.log(p[place, token]) for place, token in enumerate([*tokens, END]))

    for row, hypothesis in enumerate(found):
        if hypothesis.score > -math.inf:
            assert hypothesis.score == pytest.approx(score(row, hypothesis.tokens), rel=1e-4)
        if empty[row] > -math.inf:
            assert empty[row].item() == pytest.approx(score(row, []), rel=1e-4)
        limit = int(1.5 * (source[row] != PADDING).sum()) + 10
        assert len(hypothesis.tokens) <= limit
        assert not {PADDING, BEGIN, END} & set(hypothesis.tokens)


def test_sentences_are_measured_as_sacrebleu_does() -> None:
    texts = ["a dog runs fast through the park", "two men are sleeping on a bench", ""]
    references = ["a dog runs fast through a park", "two men are sleeping on a bench", "a cat"]
    found = [Hypothesis([5, 6], -2.0), Hypothesis([7], -1.0), Hypothesis([], -0.5)]
    metrics = SentenceMetrics()
    metrics.update(torch.tensor([2, 0]), found[:2], texts[:2], references[:2], torch.tensor([-1.5, -math.inf]))
    metrics.update(torch.tensor([1]), found[2:], texts[2:], references[2:], torch.tensor([-0.4999]))
    measured = metrics.measured()
    assert measured["bleu"] == pytest.approx(corpus_bleu(texts, [references]).score)
    assert measured["chrf"] == pytest.approx(corpus_chrf(texts, [references]).score)
    assert measured["exact_match"] == pytest.approx(1 / 3)
    assert measured["empty_preferred"] == pytest.approx(1 / 3)  # what is empty already is not preferred to itself
    assert measured["empty_possible"] == pytest.approx(2 / 3)
    assert measured["unfinished"] == 0
    metrics.reset()
    metrics.update(torch.tensor([0]), [Hypothesis([5], -math.inf)], ["a"], ["b"], torch.tensor([-9.0]))
    assert (metrics.measured()["unfinished"], metrics.measured()["empty_preferred"]) == (1, 1)


def test_tokens_are_measured_over_the_vocabulary_and_over_the_types_in_use() -> None:
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
    assert metrics.measured() == pytest.approx(expected)


def test_the_learning_rate_warms_up_and_falls_as_the_inverse_square_root() -> None:
    asked = settings("optimizer.learning_rate=0.02", "optimizer.warm_up_steps=4").optimizer
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=asked.learning_rate)
    schedule = learning_rate_schedule(optimizer, asked)
    rates = []
    for _ in range(16):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    torch.testing.assert_close(rates[:4], [0.005, 0.01, 0.015, 0.02])
    assert rates[15] == pytest.approx(0.02 * math.sqrt(4 / 16))


def test_the_average_follows_the_trained_parameters_and_translates() -> None:
    learner = translator("optimizer.average_decay=0.3")
    assert learner.evaluated is not learner.model
    trained = [torch.full_like(learner.model.output_bias, value) for value in (1.0, 2.0, 5.0, 7.0)]
    expected = trained[0]
    for steps, value in enumerate(trained):
        with torch.no_grad():
            learner.model.output_bias.copy_(value)
        learner.after_step()
        decay = max(0.3, 9 / (10 + steps))
        expected = value if steps == 0 else expected + decay * (value - expected)
        torch.testing.assert_close(learner.evaluated.output_bias, expected)
    assert translator().evaluated is not None


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("model.dimension=60", "model.dimension=60 is not allowed; it must be divisible by 2 * model.heads = 8"),
        ("trainer.batch_size=8", "it counts target tokens here, and must be at least 9"),
        ("trainer.sampler=class_balanced", "trainer.sampler=class_balanced is not allowed with model=transformer_tiny"),
        ("trainer.train_metrics=evaluated", "trainer.train_metrics=evaluated is not allowed"),
        ("data.longest=2", "data.shortest=3 is not allowed; it must be at most data.longest=2"),
        ("data.words=2", "data.words=2 words, data.shortest=3 to data.longest=8 a sentence, there are 504"),
        ("model.beam.size=0", "model.beam.size=0 is not allowed; it must be >= 1"),
        ("model.beam.scores=best", "it must be one of normalised, raw"),
        ("optimizer.beta2=1.0", "optimizer.beta2=1.0 is not allowed"),
    ],
)
def test_a_setting_that_cannot_be_is_named(override: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        settings("data.train_size=300", override)
    assert said in str(error.value)


def test_settings_of_translation_are_refused_elsewhere() -> None:
    register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        composed = compose("config", overrides=["experiment=digits", "optimizer.average_decay=0.1"])
    with pytest.raises(ConfigurationError, match=r"optimizer\.average_decay=0\.1 is not allowed with model=perceptron"):
        typed(composed)


@pytest.mark.parametrize("attention", ["entmax", "sharmix"])
def test_every_learned_order_has_the_learning_rate_of_its_own(attention: str) -> None:
    learner = translator("activation=sharmix_learned", f"attention={attention}", "optimizer.entropy_learning_rate=0.5")
    network, entropy = learner.configure_optimizers().param_groups
    orders = [parameter for name, parameter in learner.named_parameters() if name.endswith((".q", ".r", ".alpha"))]
    assert entropy["lr"] == 0.5
    assert {id(parameter) for parameter in entropy["params"]} == {id(parameter) for parameter in orders}
    assert len(entropy["params"]) == len(orders) == 2 + 6 * (1 if attention == "entmax" else 2)
    assert len(network["params"]) + len(orders) == len(list(learner.parameters()))


def test_attention_that_cannot_be_is_named_before_any_data_are_read(tmp_path: Path) -> None:
    asked = composed("experiment=multi30k", "attention=entmax", "model.attention.alpha=3", "paths.data=nowhere")
    with pytest.raises(ConfigurationError, match=r"model\.attention=entmax_learned: alpha=3"):
        perform(asked, tmp_path)


def test_the_vocabulary_of_copies_is_all_in_use() -> None:
    data = load_data(settings().data, None)
    assert data.types_in_use().tolist() == [False, False, False, True, *[True] * (data.vocabulary_size - FIRST)]
