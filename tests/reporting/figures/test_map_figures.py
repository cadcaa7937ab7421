"""Figures that need no records."""

import torch

from reporting.figures.maps import ORDERS, draw_maps, draw_ternary


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


def test_each_triangle_shows_three_classes_under_one_pair_of_orders():
    *triangles, colours = draw_ternary(None).axes
    names = [axes.get_title() for axes in triangles]
    assert names == [name for name, _ in ORDERS.values()]
    assert colours.get_ylabel() == "p₁"
    dense, sparse = (triangles[names.index(name)] for name in ("softmax (1, 1)", "sparsemax (2, 2)"))
    assert len(sparse.collections) == len(dense.collections) + 1  # the borders of the support
