"""Figures that need no records: maps and losses."""

import pytest
import torch

from reporting.figures.losses import draw_losses, losses
from reporting.figures.maps import ORDERS, draw_maps, draw_ternary


def test_of_two_classes_the_loss_of_sparsemax_is_a_quarter_of_hubers():
    margin = torch.linspace(-4, 4, 101, dtype=torch.float64)
    shown = {name: values for name, (values, _) in losses(margin).items()}
    torch.testing.assert_close(4 * shown["sparsemax"], shown["Huber (modified, for classes)"])
    torch.testing.assert_close(shown["logistic (softmax)"], torch.log1p(torch.exp(-margin)))
    assert (shown["hinge"] >= shown["sparsemax"] - 1e-12).all()
    assert {line.get_label() for line in draw_losses(None).axes[0].lines} == set(shown)
    assert [name for name in shown if name.startswith("SharMiX")] == ["SharMiX (1.25, 1.50)", "SharMiX (1.75, 1.25)"]


def curves(axes):
    return {line.get_label(): [torch.as_tensor(values) for values in line.get_data()] for line in axes.lines}


def test_of_two_classes_sparsemax_is_a_ramp_with_a_step_as_derivative():
    maps = draw_maps(None).axes
    t, p = curves(maps[0])["sparsemax (2, 2)"]
    torch.testing.assert_close(p, ((t + 1) / 2).clamp(0, 1))
    t, slope = curves(maps[1])["sparsemax (2, 2)"]
    inside = (t - 1).abs() > 1e-9
    torch.testing.assert_close(slope[inside], torch.where(t < 1, 0.5, 0.0).double()[inside])
    t, slope = curves(maps[1])["softmax (1, 1)"]
    torch.testing.assert_close(slope, torch.sigmoid(t) * torch.sigmoid(-t))


def test_the_titles_of_the_maps_are_true():
    """Every sparse map has a dot at its first 1, and only one gets steeper."""
    line, slope = draw_maps(None).axes
    dots = {one.get_label(): [one.get_xdata()[place] for place in one.get_markevery()] for one in line.lines}
    assert dots.pop("softmax (1, 1)") == []
    assert [*dots.values()] == [pytest.approx([t], abs=0.005) for t in (4, 2, 1, 4 / 3)]
    rising = [name for name, (_, values) in curves(slope).items() if values.diff().max() > 1e-9]
    assert rising == ["SharMiX (1.75, 1.25)"]


@pytest.mark.medium
def test_each_triangle_shows_three_classes_under_one_pair_of_orders():
    *triangles, colours = draw_ternary(None).axes
    names = [axes.get_title() for axes in triangles]
    assert names == [name for name, _ in ORDERS.values()]
    assert colours.get_ylabel() == "p₁"
    dense, sparse = (triangles[names.index(name)] for name in ("softmax (1, 1)", "sparsemax (2, 2)"))
    assert len(sparse.collections) == len(dense.collections) + 1  # the borders of the support
