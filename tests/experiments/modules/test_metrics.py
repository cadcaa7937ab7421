"""What is measured of a classifier's output."""

import pytest
import torch

from experiments.modules.metrics import OutputMetrics


def test_counting_leaves_the_deterministic_mode_as_it_was() -> None:
    metrics = OutputMetrics(3)
    example = torch.tensor([[3.0, 1.0, 0.0]]), torch.tensor([[0.75, 0.25, 0.0]])
    for mode in (True, False):
        torch.use_deterministic_algorithms(mode)
        metrics.update(*example, torch.tensor([0]), torch.tensor([1.0]))
        with pytest.raises(ValueError, match="same shape"):
            metrics.update(*example, torch.tensor([0, 1]), torch.tensor([1.0]))
        assert torch.are_deterministic_algorithms_enabled() == mode


def test_every_metric_on_four_examples_by_hand() -> None:
    metrics = OutputMetrics(3, {"many": torch.tensor([0]), "few": torch.tensor([1, 2])})
    logits = torch.tensor([[3.0, 1.0, 0.0], [2.0, 1.0, 0.0], [0.0, 1.0, 2.0], [5.0, 0.0, 0.0]])
    probabilities = torch.tensor([[0.75, 0.25, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    targets = torch.tensor([0, 1, 2, 1])
    for part in (slice(0, 3), slice(3, 4)):  # a batch without the class of many shots is harmless
        metrics.update(logits[part], probabilities[part], targets[part], torch.tensor([1.0, 2.0, 3.0, 6.0])[part])
    measured = {name: value.item() for name, value in metrics.compute().items()}
    brier = [0.25**2 + 0.25**2, 0.5**2 + 0.5**2, 0.0, 2.0]
    assert measured == pytest.approx(
        {
            "accuracy": 2 / 4,
            "macro_f1": (2 / 4 + 0 + 1) / 3,
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
