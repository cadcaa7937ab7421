"""Figures with a panel for each experiment."""

import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from reporting.figures.beside_softmax import draw_accuracy_sparsity, draw_learning_curves
from reporting.figures.figure2 import draw_figure2
from reporting.figures.studies import draw_learning_rates
from reporting.records.kept_runs import KeptRuns, ShownPanel
from reporting.tables import rebuild_tables
from tests.reporting.synthetic_records import grouped, keep_records, make_record
from tests.reporting.synthetic_results import RESULTS, cells_of

LEARNED = {"q": 1.25, "r": 1.5, "objective": "fenchel_young"}


def of_panel(records, epoch=None):
    """Made-up kept runs with one panel."""
    return of_panels(records, epoch=epoch)


def of_panels(*experiments, epoch=None):
    """Made-up kept runs with a panel for each experiment."""
    panels = [ShownPanel("A title", groups, groups, epoch) for groups in grouped(*experiments)]
    return SimpleNamespace(panels=panels, declaration=SimpleNamespace(confidence=0.95))


def title(axes):
    return axes.get_title(loc="left")


def lines_of(axes):
    return {line.get_label(): line.get_ydata() for line in axes.lines if line.get_label()[0] != "_"}


def intervals_of(axes):
    """Of each row the ends of the interval, the mean, and whether its marker is filled."""
    return [
        (interval.get_xdata(), *mean.get_xdata(), mean.get_markerfacecolor() != "white")
        for interval, mean in zip(axes.lines[::2], axes.lines[1::2], strict=False)  # without the line of softmax
    ]


def means(runs, column):
    """The mean over seeds of a column of the curves, by epoch."""
    return np.mean([[row[column] for row in record.curves] for record in runs.records], axis=0)


def test_figure_2_has_a_line_for_each_training_set_beside_the_published_levels(kept):
    tiny, _, cifar, r_cifar = draw_figure2(kept).axes
    assert [title(axes).partition(",")[0] for axes in (tiny, cifar)] == ["Tiny ImageNet", "CIFAR-100"]
    bands = {
        band.get_label(): band.get_paths()[0].get_extents()
        for band in tiny.collections
        if "ImageNet" in band.get_label()
    }
    (tail, *_), (balanced, *_) = (
        bands[f"{name}, published (ImageNet)"].intervaly for name in ("long-tailed", "balanced")
    )
    assert (tail, balanced) == pytest.approx((0.91, -0.015))
    assert bands["balanced, published (ImageNet)"].intervalx.tolist() == [4, 15]
    sets = {"balanced": "cifar100_orders", "control": "cifar100_subset_orders", "long-tailed": "cifar100_lt_orders"}
    assert [*lines_of(cifar)] == [*sets]
    for name, table in sets.items():
        learned = kept.selections[table].rows["learned"]
        assert lines_of(cifar)[name] == pytest.approx(means(learned, "test/sparsity"))
        assert lines_of(r_cifar)[name] == pytest.approx(means(learned, "r"))


@pytest.mark.medium
def test_records_of_imagenet_give_a_row_of_figure_2_tables_and_verdicts(tmp_path):
    """One command draws and decides what somebody with a GPU has run, with nothing edited."""
    (tmp_path / "records").mkdir()
    for experiment, sparsity in {"imagenet_lt": 0.94, "imagenet_balanced": 0.4}.items():
        runs = [
            make_record(
                "sharmix_learned", seed, experiment, {"sparsity": sparsity + seed / 10_000}, epochs=15, **LEARNED
            )
            for seed in (21, 42, 63)
        ]
        keep_records(tmp_path, runs, experiment)
    kept = KeptRuns.load(tmp_path)
    assert title(draw_figure2(kept).axes[0]) == "ImageNet-1k and ImageNet-LT, 3 seeds"
    rebuild_tables(kept)
    verdicts = pd.read_csv(tmp_path / "tables" / "verdicts.csv").set_index("claim")["verdict"]
    assert verdicts.to_dict() == {
        "On long-tailed ImageNet sparsity ends between 0.91 and 0.95": "reproduces",
        "On balanced ImageNet the output is dense by epoch 5": "does not reproduce",
        "On balanced ImageNet the output is dense at the end": "does not reproduce",
    }
    cells = cells_of(tmp_path, "imagenet_lt")["SharMiX learned (1.25, 1.50)"]
    assert cells["On test, epoch 15 | sparsity, theirs"] == "0.910 to 0.950"
    assert [title.rpartition(" | ")[2] for title in cells][1:] == [
        "sparsity, ours",
        "accuracy, ours",
        "q, ours",
        "r, ours",
    ]


def test_runs_of_different_lengths_are_compared_with_softmax_at_one_epoch():
    longer = make_record("softmax", test={"accuracy": 0.5}, epochs=8)
    shorter = make_record("sparsemax", test={"accuracy": 0.4}, epochs=4)
    axes, _ = draw_accuracy_sparsity(of_panel([longer, shorter], epoch=4)).axes
    assert title(axes) == "A title, 1 seed, epoch 4"
    [(interval, mean, _)] = intervals_of(axes)
    assert mean == pytest.approx(100 * (0.4 - (0.5 - (0.1 / 4 - 0.1 / 8))))
    assert np.isnan(interval).all()
    assert axes.lines[1].get_markersize() < 4  # of one seed


def test_intervals_are_over_seeds_and_the_sparsest_activation_is_the_last():
    points = {"softmax": (0, 0, 0), "entmax": (1, 2, 3), "sparsemax": (-3, -2, -1.5)}  # minus softmax
    sparsities = {"softmax": 0, "entmax": 0.3, "sparsemax": 0.2}
    records = [
        make_record(name, seed, test={"accuracy": 0.5 + own / 100, "sparsity": sparsities[name]})
        for name, accuracies in points.items()
        for seed, own in enumerate(accuracies)
    ]
    difference, sparsity = draw_accuracy_sparsity(of_panel(records)).axes
    assert [text.get_text() for text in difference.get_yticklabels()] == ["sparsemax", "entmax"]
    assert [mean for _, mean, _ in intervals_of(sparsity)] == pytest.approx([0.2, 0.3])
    for (interval, mean, filled), name in zip(intervals_of(difference), ("sparsemax", "entmax"), strict=True):
        expected = stats.ttest_1samp(points[name], 0).confidence_interval(0.95)
        assert interval == pytest.approx(expected)
        assert mean == pytest.approx(np.mean(points[name]))
        assert filled == (name == "sparsemax")


def test_the_differences_at_own_rates_are_those_of_the_studys_page(kept):
    figure = draw_learning_rates(kept)
    drawn = [one for axes in figure.axes for one in intervals_of(axes)]
    page = (RESULTS / "studies" / "learning_rates.md").read_text("utf-8").replace("−", "-")
    printed = re.findall(r"([+-][.\d]+) \[([+-][.\d]+), ([+-][.\d]+)\] \|$", page, re.MULTILINE)
    for ((low, high), mean, filled), numbers in zip(drawn, printed, strict=True):
        assert [mean, low, high] == pytest.approx([100 * float(number) for number in numbers], abs=0.0051)
        assert filled == (low > 0 or high < 0)
    hollow = sum(not filled for _, _, filled in drawn)
    assert f": {hollow} of {len(drawn)} intervals" in figure.get_suptitle()


def test_curves_are_of_the_activations_that_every_panel_has_and_the_title_counts_them():
    def of(name, first):
        record = make_record(name, test={"accuracy": 0.5})
        record["curves"][0]["test/accuracy"] = first
        return record

    here = [of("softmax", 0.5), of("sparsemax", 0.3), of("entmax", 0.2)]
    figure = draw_learning_curves(of_panels(here, [of("softmax", 0.5), of("sparsemax", 0.5)]))
    assert [[*lines_of(axes)] for axes in figure.axes] == [["sparsemax"], ["sparsemax"]]
    assert figure.get_suptitle().startswith("1 of 2 curves end nearer")


def test_a_band_spans_the_seeds_and_the_mean_ends_with_the_shortest_run():
    accuracies = {"softmax": 0.5, "sparsemax": 0.51}
    records = [
        make_record(name, seed, test={"accuracy": accuracy + (name == "sparsemax") * 0.01 * seed}, epochs=epochs)
        for name, accuracy in accuracies.items()
        for seed, epochs in ((1, 3), (2, 3), (3, 4))
    ]
    (axes,) = draw_learning_curves(of_panel(records)).axes
    (band,) = axes.collections
    ends = [float(y) for x, y in band.get_paths()[0].vertices if x == 3]
    assert (min(ends), max(ends)) == pytest.approx((2, 4))  # points ahead of softmax with the same seed
    assert np.isfinite(lines_of(axes)["sparsemax"]).tolist() == [True, True, True, False]
