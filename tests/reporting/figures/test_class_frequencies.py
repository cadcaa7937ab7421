"""The figures of sparsity, fit and learned orders on three training sets, by step and by fit."""

import numpy as np
import pytest

from reporting.figures.class_frequencies import TABLES, draw_class_frequencies
from reporting.figures.figure2 import draw_sparsity_by_fit
from reporting.look.palette import OBJECTIVES


def assert_lines(kept, axes, objective, x, y):
    """Assert that a panel has a line for each training set under an objective: column `y` over column `x`."""
    lines = {line.get_label(): line for line in axes.lines if line.get_label()[0] != "_"}
    assert list(lines) == list(TABLES)
    assert len({line.get_linestyle() for line in lines.values()}) == 3
    for name, line in lines.items():
        groups = kept.of_table(TABLES[name])
        (group,) = (group for group in groups if group.runs.activation["objective"] == objective)
        points = np.array([[row[x], row[y]] for row in group.runs.records[0].curves])
        assert line.get_xydata() == pytest.approx(points), (name, objective)


def test_each_objective_has_sparsity_fit_q_and_r_by_step_on_each_set(kept):
    panels = draw_class_frequencies(kept).axes
    columns = {"sparsity on test": "test/sparsity", "accuracy on train": "train/accuracy", "q": "q", "r": "r"}
    assert [axes.get_ylabel() for axes in panels] == 3 * [*columns]
    for place, axes in enumerate(panels):
        assert_lines(kept, axes, [*OBJECTIVES][place // 4], "steps", columns[axes.get_ylabel()])


def test_sparsity_stands_over_accuracy_and_over_macro_f1_on_train_for_each_network(kept):
    panels = draw_sparsity_by_fit(kept).axes
    titles = [axes.get_title(loc="left").partition(",")[0] for axes in panels[::2]]
    assert titles == ["Tiny ImageNet", "CIFAR-100"]
    place = 2 * titles.index("CIFAR-100")
    for axes, column in zip(panels[place : place + 2], ("train/accuracy", "train/macro_f1"), strict=True):
        assert_lines(kept, axes, "fenchel_young", column, "test/sparsity")
