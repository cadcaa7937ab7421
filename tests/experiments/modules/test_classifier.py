"""Classification under output activations: its loss, what is measured of it, and the networks that it refuses."""

import functools
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, one_hot
from torchmetrics import Metric
from torchmetrics.classification import MulticlassAccuracy, MulticlassCalibrationError

import sharmix
from experiments.composition import settings_of as settings
from experiments.errors import ConfigurationError
from experiments.modules.classifier import Classifier
from experiments.modules.metrics import OutputMetrics
from experiments.modules.optimizer import AdamSettings
from experiments.run import Run
from sharmix import build_activation
from tests.experiments.building import classifier, digits, stock_trainer


def test_label_smoothing_reaches_the_loss():
    found = {}
    for share in (0.0, 0.2):
        module, data = Run(settings("experiment=digits", f"module.label_smoothing={share}"), Path()).build()
        data.trainer = stock_trainer()
        given = next(iter(data.train_dataloader()))
        expected = cross_entropy(module.network(given.inputs), given.targets, label_smoothing=share)
        soft = torch.full((10,), share / 10) + one_hot(torch.tensor(0), 10) * (1 - share)
        found[share] = module.training_step(given, 0)
        torch.testing.assert_close(found[share], expected + torch.special.xlogy(soft, soft).sum())
    assert found[0.0] != found[0.2]


def test_label_smoothing_does_not_change_how_evaluation_measures():
    losses = []
    for share in (0.0, 0.2):
        trainer = stock_trainer()
        trainer.test(classifier("softmax", label_smoothing=share), digits(), verbose=False)
        losses.append(trainer.callback_metrics["test/loss"])
    assert losses[0] == losses[1]


class Noisy(nn.Module):
    """Draws random numbers, and holds a part that is never to be trained."""

    def __init__(self):
        super().__init__()
        self.frozen, self.output = nn.BatchNorm1d(64).eval(), nn.Linear(64, 10)

    def forward(self, inputs):
        return self.output(self.frozen(inputs) + 0.01 * torch.randn_like(inputs))


def over(network):
    optimizer = AdamSettings(learning_rate=1e-3, entropy_learning_rate=1e-3)
    return Classifier(network, build_activation("softmax"), optimizer, num_classes=10)


def test_a_network_that_fits_is_left_as_it_was():
    network = Noisy()
    module = over(network)
    for mode in (True, False):
        network.training = network.output.training = mode
        before, numbers = {name: value.clone() for name, value in network.state_dict().items()}, torch.get_rng_state()
        module.check(torch.rand(3, 64, generator=torch.Generator().manual_seed(0)))
        assert (network.training, network.output.training, network.frozen.training) == (mode, mode, False)
        assert torch.equal(torch.get_rng_state(), numbers)
        for name, value in network.state_dict().items():
            assert torch.equal(value, before[name]), name


@pytest.mark.parametrize(
    ("network", "said"),
    [
        (nn.Unflatten(1, (8, 8)), r"model: Unflatten gives an output of shape \(3, 8, 8\) for .* must be \(3, 10\)"),
        (nn.Conv2d(3, 10, 1), r"model: Conv2d cannot read inputs of shape \(3, 64\) and type torch\.float32: "),
        (nn.LSTM(64, 10), r"model: LSTM gives an output of shape \(\) for inputs of shape \(3, 64\)"),
    ],
    ids=["outputs", "inputs", "tuple"],
)
def test_a_network_that_does_not_fit_the_data_is_named_with_the_shapes(network, said):
    with pytest.raises(ConfigurationError, match=said):
        over(network).check(torch.rand(3, 64))
    assert network.training


class Summed(sharmix.Softmax):
    """Gives one number for each example."""

    def forward(self, logits):
        return super().forward(logits).sum(-1)


class OfEachExample(sharmix.Softmax):
    """Does not reduce its loss."""

    def loss(self, logits, targets, **options):
        return super().loss(logits, targets, **options | {"reduction": "none"})


@pytest.mark.parametrize(
    ("activation", "said"),
    [
        (Summed(), r"activation: Summed gives an output of shape \(3,\) for .* must be \(3, 10\)"),
        (OfEachExample(), r"activation: OfEachExample\.loss gives an output of shape \(3,\) for .* must be \(\)"),
    ],
    ids=["probabilities", "loss"],
)
def test_an_activation_that_does_not_fit_is_named_with_the_shapes(activation, said):
    module = classifier("softmax")
    module.activation = activation
    with pytest.raises(ConfigurationError, match=said):
        module.check(torch.rand(3, 64))


def test_the_check_calibrates_no_threshold():
    module = classifier("alpha_relu")
    module.check(torch.rand(3, 64))
    assert module.lacks_threshold()


@pytest.mark.medium
def test_further_metrics_are_measured_on_every_split_as_torchmetrics_does():
    calibration: Callable[..., Metric] = functools.partial(MulticlassCalibrationError, n_bins=5)
    module = classifier("sharmix_learned", metrics={"calibration_error": calibration})
    data, trainer = digits(validation_fraction=0.2, evaluation_batch_size=100), stock_trainer()
    trainer.fit(module, data)
    module.eval()
    for split in ("train", "validation", "test"):
        examples = getattr(data.data, split)
        inputs, targets = examples.read(torch.arange(len(examples.targets)), torch.zeros(0))
        with torch.no_grad():
            expected = MulticlassCalibrationError(10, n_bins=5)(module.probabilities(inputs), targets)
        found = trainer.callback_metrics[f"{split}/calibration_error"].item()
        assert found == pytest.approx(expected.item(), abs=1e-6), split
        assert found > 0


def test_a_further_metric_of_several_numbers_is_named():
    module = classifier(metrics={"by_class": functools.partial(MulticlassAccuracy, average=None)})
    with pytest.raises(ConfigurationError, match=r"module\.metrics\.by_class computes several numbers"):
        stock_trainer().fit(module, digits())


def test_counting_leaves_the_deterministic_mode_as_it_was():
    metrics = OutputMetrics(3)
    example = torch.tensor([[3.0, 1.0, 0.0]]), torch.tensor([[0.75, 0.25, 0.0]])
    for mode in (True, False):
        torch.use_deterministic_algorithms(mode)
        metrics.update(*example, torch.tensor([0]), torch.tensor([1.0]))
        with pytest.raises(ValueError, match="same shape"):
            metrics.update(*example, torch.tensor([0, 1]), torch.tensor([1.0]))
        assert torch.are_deterministic_algorithms_enabled() == mode


def test_every_metric_on_four_examples_by_hand():
    metrics = OutputMetrics(3, {"many": torch.tensor([0]), "few": torch.tensor([1, 2])})
    logits = torch.tensor([[3.0, 1.0, 0.0], [2.0, 1.0, 0.0], [0.0, 1.0, 2.0], [5.0, 0.0, 0.0]])
    probabilities = torch.tensor([[0.75, 0.25, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    targets = torch.tensor([0, 1, 2, 2])
    for part in (slice(0, 3), slice(3, 4)):  # a batch without the class of many shots is harmless
        metrics.update(logits[part], probabilities[part], targets[part], torch.tensor([1.0, 2.0, 3.0, 6.0])[part])
    measured = {name: value.item() for name, value in metrics.compute().items()}
    brier = [0.25**2 + 0.25**2, 0.5**2 + 0.5**2, 0.0, 2.0]
    assert measured == pytest.approx(
        {
            "accuracy": 2 / 4,
            "macro_f1": (2 / 4 + 0 + 2 / 3) / 3,
            "loss": 3.0,
            "sparsity": (1 + 1 + 2 + 2) / 12,
            "support": (2 + 2 + 1 + 1) / 4,
            "coverage": 3 / 4,
            "zero_true": 1 / 4,
            "brier": sum(brier) / 4,
            "many_accuracy": 1.0,
            "many_sparsity": 1 / 3,
            "few_accuracy": 1 / 3,
            "few_sparsity": (1 + 2 + 2) / 9,
        }
    )
