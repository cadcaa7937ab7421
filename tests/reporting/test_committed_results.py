"""What is committed under results/ belongs together: tables and figures are what the records give."""

import shutil

import numpy as np
import pandas as pd
import pytest
from matplotlib.text import Text

from reporting.figures import all_figures
from reporting.records.collected_records import read_records
from reporting.records.kept_runs import KeptRuns
from reporting.tables import rebuild_tables
from tests.reporting.synthetic_results import RESULTS


@pytest.mark.medium
def test_the_committed_tables_are_those_of_the_committed_records(tmp_path):
    for folder in ("records", "studies"):
        shutil.copytree(RESULTS / folder, tmp_path / folder)
    written, left_out = rebuild_tables(KeptRuns.load(tmp_path))
    assert not left_out
    assert {file.name for file in written} == {file.name for file in (RESULTS / "tables").iterdir()}
    differing = [file.name for file in written if file.read_text() != (RESULTS / "tables" / file.name).read_text()]
    assert not differing


def test_each_number_that_does_not_reproduce_says_when_it_comes_near():
    verdicts = pd.read_csv(RESULTS / "tables" / "verdicts.csv")
    failed = verdicts["verdict"] == "does not reproduce"
    assert failed.any()
    assert verdicts[failed]["near_when"].notna().all()
    assert verdicts[verdicts["verdict"] == "reproduces"]["near_when"].isna().all()
    assert (verdicts["near_deviations"].dropna() <= 2).all()


def test_each_published_number_is_counted_once():
    verdicts = pd.read_csv(RESULTS / "tables" / "verdicts.csv")
    tweets = verdicts[verdicts["table"].isin(["table1", "table3"]) & (verdicts["kind"] == "level")]
    assert not tweets.duplicated(["row", "metric"]).any()
    assert not ((verdicts["row"] == "softmax") & (verdicts["metric"] == "sparsity")).any()


def test_the_data_of_every_record_has_the_seed_of_its_run():
    for file in (RESULTS / "records").glob("*.jsonl"):
        for record in read_records(RESULTS, file.stem):
            assert record.config["data"].get("seed", record.seed) == record.seed, file.name


@pytest.mark.medium
def test_every_committed_figure_can_be_drawn_from_the_committed_records():
    figures = all_figures()
    committed = {file.name for file in (RESULTS / "figures").iterdir()}
    assert committed == {f"{name}.{end}" for name in figures for end in ("svg", "pdf")}
    kept = KeptRuns.load(RESULTS)
    drawn = {name: draw(kept) for name, draw in figures.items()}
    titles = [axes.get_title(loc="left") for axes in drawn["figure1"].axes]
    assert [title.rpartition(", ")[0] for title in titles if title] == [
        panel.title for panel in kept.declaration.figures.panels
    ]
    assert not {name: points for name, figure in drawn.items() if (points := smallest_text(figure)) < 6}
    assert not [name for name, figure in drawn.items() if not figure.axes]
    assert not {name: texts for name, figure in drawn.items() if (texts := cut_titles(figure))}
    assert not [line.get_label() for axes in drawn["learning_curves"].axes for line in axes.lines if ends_outside(line)]
    assert kept.missing.keys() <= {"imagenet_lt", "imagenet_balanced", "tiny_imagenet_balanced"}


def ends_outside(line):
    """Whether the last point of a line lies outside its panel."""
    heights = np.asarray(line.get_ydata())
    low, high = line.axes.get_ylim()
    return not low <= heights[np.isfinite(heights)][-1] <= high


def cut_titles(figure):
    """The titles that the edge of a figure cuts off."""
    figure.draw_without_rendering()
    titles = {axes.get_title(loc="left") for axes in figure.axes}
    shown = [text for text in figure.findobj(Text) if text.get_text() in titles - {""}]
    return [text.get_text() for text in shown if text.get_window_extent().x1 > figure.bbox.x1]


def smallest_text(figure):
    """Points of the smallest text of a figure in a column that is 345 pt wide."""
    texts = [text for text in figure.findobj(Text) if text.get_text() and text.get_visible()]
    return min(text.get_fontsize() for text in texts) * 345 / 72.27 / figure.get_size_inches()[0]


def test_every_committed_svg_follows_the_theme():
    files = sorted(RESULTS.rglob("*.svg"))
    assert len(files) > 10
    assert not [file.name for file in files if "currentColor" not in file.read_text("utf-8")]
