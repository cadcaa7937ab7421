"""Figures with a panel for each experiment."""

from types import SimpleNamespace

import numpy as np
import pytest

from reporting.figures.accuracy_sparsity import draw_accuracy_sparsity
from reporting.figures.figure1 import draw_figure1
from reporting.figures.figure2 import draw_figure2
from reporting.figures.learning_curves import draw_learning_curves
from reporting.groups import label_runs, style_groups
from reporting.kept_runs import ShownPanel
from tests.reporting.synthetic_records import as_read, make_record


def of_panel(records, epoch=None):
    """Made-up kept runs with one panel."""
    (groups,) = style_groups([label_runs([as_read(record) for record in records])])
    return SimpleNamespace(panels=[ShownPanel("A title", groups, groups, epoch)])


def title(axes):
    return axes.get_title(loc="left")


def lines_of(axes):
    return {line.get_label(): line.get_ydata() for line in axes.lines if line.get_label()[0] != "_"}


def means(runs, column):
    """The mean over seeds of a column of the curves, by epoch."""
    return np.mean([[row[column] for row in record.curves] for record in runs.records], axis=0)


def test_figure_1_has_a_plane_with_paths_for_each_panel(kept):
    panels = draw_figure1(kept).axes[: len(kept.panels)]
    none, *_ = draw_figure1(of_panel([make_record()])).axes
    assert title(panels[0]) == "Airline Tweets, 5 seeds"
    for axes, panel in zip(panels, kept.panels, strict=True):
        paths = sum(len(group.runs.paths()) for group in panel.paths)
        assert paths >= 3
        assert len(axes.lines) == len(none.lines) + 3 * paths  # each with its start and its end


def test_figure_2_shows_both_regimes_beside_the_published_levels(kept):
    balanced, r_balanced, tail, _ = draw_figure2(kept).axes
    assert title(balanced).startswith("CIFAR-100, balanced, ")
    assert [title(axes).rpartition(": ")[2] for axes in (balanced, r_balanced)] == ["sparsity", "r"]
    assert balanced.texts[0].get_text().strip() == "published (grey), ImageNet: 0.0 from epoch 4 or 5"
    assert tail.texts[0].get_text().strip() == "published (grey), ImageNet: 0.91 to 0.95"
    (band,) = tail.patches
    assert (band.get_y(), band.get_height()) == (0.91, pytest.approx(0.04))
    rows = kept.selections["table2"].rows
    learned = rows["learned"]
    assert len(lines_of(balanced)) == len(rows)
    name = "SharMiX learned (1.25, 1.50)"
    assert lines_of(balanced)[name] == pytest.approx(means(learned, "test/sparsity"))
    assert lines_of(r_balanced)[name] == pytest.approx(means(learned, "r"))
    assert list(lines_of(r_balanced)["SharMiX fixed (1.25, 1.50)"]) == [1.5, 1.5]


def test_runs_of_different_lengths_are_compared_at_one_epoch():
    longer = make_record("softmax", test={"accuracy": 0.5}, epochs=8)
    shorter = make_record("sparsemax", test={"accuracy": 0.4}, epochs=4)
    axes, _ = draw_accuracy_sparsity(of_panel([longer, shorter], epoch=4)).axes
    low, high = axes.get_ylim()
    assert axes.get_ylabel() == f"test accuracy,\naxis from {low:.2f} to {high:.2f}"
    assert title(axes) == "A title, 1 seed, epoch 4"
    heights = {round(float(point[1]), 6) for scatter in axes.collections for point in np.asarray(scatter.get_offsets())}
    assert heights == {0.4, 0.5 - (0.1 / 4 - 0.1 / 8)}


def test_a_band_spans_the_seeds_and_the_mean_ends_with_the_shortest_run():
    records = [
        make_record("softmax", seed, test={"accuracy": 0.5 + 0.01 * seed}, epochs=epochs)
        for seed, epochs in ((1, 3), (2, 3), (3, 4))
    ]
    (axes,) = draw_learning_curves(of_panel(records)).axes
    (band,) = axes.collections
    ends = [round(float(y), 6) for x, y in band.get_paths()[0].vertices if x == 3]
    assert (min(ends), max(ends)) == pytest.approx((0.51, 0.53 - (0.1 / 3 - 0.1 / 4)), abs=1e-6)
    assert np.isfinite(axes.lines[0].get_ydata()).tolist() == [True, True, True, False]
