"""Figures that need no records: maps and losses."""

import pytest
import torch

from reporting.figures.losses import draw_losses, losses
from reporting.figures.maps import draw_maps


def test_of_two_classes_the_loss_of_sparsemax_is_a_quarter_of_hubers():
    margin = torch.linspace(-4, 4, 101, dtype=torch.float64)
    shown = {name: values for name, (values, _) in losses(margin).items()}
    torch.testing.assert_close(4 * shown["sparsemax"], shown["Huber (modified, for classes)"])
    torch.testing.assert_close(shown["logistic (softmax)"], torch.log1p(torch.exp(-margin)))
    assert (shown["hinge"] >= shown["sparsemax"] - 1e-12).all()
    assert {line.get_label() for line in draw_losses(None).axes[0].lines} == set(shown)


def test_of_two_classes_sparsemax_is_a_ramp():
    line = draw_maps(None).axes[0].lines[1]
    t, p = (torch.as_tensor(values) for values in line.get_data())
    assert line.get_label() == "sparsemax"
    assert p.numpy() == pytest.approx(((t + 1) / 2).clamp(0, 1).numpy())
