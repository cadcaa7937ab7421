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
from tests.reporting.synthetic_results import image_records, short_record

LEVELS = {
    "long_tailed": {"sparsity_low": 0.91, "sparsity_high": 0.95},
    "balanced": {"sparsity_final": 0.0, "zero_from_epoch": [4, 5]},
}


def panel(title, records, epoch=None, levels=None):
    (groups,) = style_groups([label_runs([as_read(record) for record in records])])
    return ShownPanel(title, groups, groups, epoch, levels)


def kept(*panels):
    """Kept runs of which only the panels are asked."""
    return SimpleNamespace(panels=panels)


def texts(axes):
    return [text.get_text() for text in axes.texts]


def title(axes):
    return axes.get_title(loc="left")


def test_figure_1_has_a_plane_with_paths_for_each_panel():
    figure = draw_figure1(kept(panel("Balanced", image_records("cifar100")), panel("None learned", [make_record()])))
    balanced, none, *_ = figure.axes
    assert [title(axes) for axes in (balanced, none)] == ["Balanced, 1 seed", "None learned, 1 seed"]
    assert texts(balanced) == texts(none)
    assert len(balanced.lines) == len(none.lines) + 9  # three paths, each with its start and its end


def test_figure_2_shows_both_regimes_beside_the_published_levels():
    figure = draw_figure2(
        kept(
            panel("Balanced", image_records("cifar100"), levels=LEVELS["balanced"]),
            panel("Without a regime", [make_record()]),
            panel("Long-tailed", image_records("cifar100_lt"), levels=LEVELS["long_tailed"]),
        )
    )
    balanced, r_balanced, tail, _ = figure.axes
    titles = ["Balanced, 1 seed: sparsity", "Balanced, 1 seed: r", "Long-tailed, 1 seed: sparsity"]
    assert [title(axes) for axes in (balanced, r_balanced, tail)] == titles
    assert texts(balanced)[0].strip() == "published (grey), ImageNet: 0.0 from epoch 4 or 5"
    assert texts(tail)[0].strip() == "published (grey), ImageNet: 0.91 to 0.95"
    (band,) = tail.patches
    assert (band.get_y(), band.get_height()) == (0.91, pytest.approx(0.04))
    curves = {line.get_label(): line.get_ydata() for line in balanced.lines}
    assert len(curves) == 8
    assert curves["SharMiX learned (1.25, 1.50, log)"] == pytest.approx([0.1] * 4)
    learned = {line.get_label(): line.get_ydata() for line in r_balanced.lines if line.get_label().startswith("S")}
    assert len(learned) == 4
    assert learned["SharMiX learned (1.25, 1.50)"] == pytest.approx([1.51, 1.52, 1.53, 1.54])
    assert list(learned["SharMiX fixed (1.25, 1.50)"]) == [1.5, 1.5]


def test_runs_of_different_lengths_are_compared_at_one_epoch():
    longer, shorter = short_record("softmax", 21, 8, 0.5), short_record("sparsemax", 21, 4, 0.4)
    axes, _ = draw_accuracy_sparsity(kept(panel("Images", [longer, shorter], epoch=4))).axes
    low, high = axes.get_ylim()
    assert axes.get_ylabel() == f"test accuracy,\naxis from {low:.2f} to {high:.2f}"
    assert title(axes) == "Images, 1 seed, epoch 4"
    two = [short_record("sparsemax", seed, 4, 0.4) for seed in (21, 42)]
    assert panel("Images", [longer, *two]).title_with_seeds() == "Images, 1 to 2 seeds"
    heights = {round(float(point[1]), 6) for scatter in axes.collections for point in np.asarray(scatter.get_offsets())}
    assert heights == {0.4, 0.5 - (0.1 / 4 - 0.1 / 8)}


def test_a_band_spans_the_seeds():
    records = [make_record("softmax", seed, "cifar100", {"accuracy": 0.5 + 0.01 * seed}) for seed in (1, 2, 3)]
    (axes,) = draw_learning_curves(kept(panel("A title", records))).axes
    assert title(axes) == "A title, 3 seeds"
    (band,) = axes.collections
    at_the_end = {round(float(y), 6) for x, y in band.get_paths()[0].vertices if x == 3}
    assert at_the_end == {0.51, 0.53}
    assert axes.lines[0].get_ydata()[-1] == pytest.approx(0.52)


def test_a_mean_ends_with_the_shortest_run():
    records = [make_record("softmax", seed, "cifar100", epochs=epochs) for seed, epochs in ((1, 4), (2, 2))]
    (axes,) = draw_learning_curves(kept(panel("A title", records))).axes
    assert np.isfinite(axes.lines[0].get_ydata()).tolist() == [True, True, False, False]
