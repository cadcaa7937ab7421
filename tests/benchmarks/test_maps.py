"""Goals of `make bench`, and the tables and figures of its CSV."""

import shutil

import numpy as np
import pandas as pd
import pytest

from benchmarks import maps
from benchmarks.contenders import FIXED, LEARNED, cpu_contenders
from benchmarks.harness import load_settings, step_times
from benchmarks.maps_figures import write_figures
from benchmarks.maps_report import page
from benchmarks.verdicts import at_least, at_most
from experiments.identity import ROOT

RESULTS = ROOT / "results" / "benchmarks"
CONTENDERS = [*cpu_contenders("map"), *cpu_contenders("loss")]


@pytest.fixture(scope="module")
def settings():
    return load_settings("maps")


def test_the_whole_interval_decides():
    for low, high, below, above in (
        (0.9, 1.0, "met", "undecided"),
        (0.9, 1.1, "undecided", "undecided"),
        (1.0, 1.1, "undecided", "met"),
        (1.1, 1.2, "missed", "met"),
        (0.8, 0.9, "met", "missed"),
        (np.nan, np.nan, "undecided", "undecided"),
    ):
        assert (at_most(1.0, low, high), at_least(1.0, low, high)) == (below, above), (low, high)


def test_every_contender_of_ours_has_one_goal_in_a_cell_with_goals(settings):
    goals = {
        (cell.classes, cell.regime, one.kind, one.name): (one.source, cell.goal(one))
        for cell in maps.cases(settings)
        for one in CONTENDERS
        if cell.goals
    }
    assert all((source == "sharmix") == (goal is not None) for source, goal in goals.values())
    assert goals[3, "sparse", "map", FIXED] == ("sharmix", 1.3)
    assert goals[1000, "sparse", "map", LEARNED] == ("sharmix", 0.9)  # of maps; the regime has none of learned orders
    assert goals[32000, "sparse", "loss", "SharMiX (1.75, 1.25)"] == (
        "sharmix",
        2.5,
    )  # of its orders, before the loss's


def test_more_threads_are_judged_by_the_baselines_gain_in_the_same_rounds():
    base = [1.9, 1.2, 1.6, 1.8, 1.4, 1.7, 1.5]
    found = maps.gain([0.9 * one for one in base], base, 0.95)
    assert (found["relative_gain_low"], found["relative_gain_high"]) == pytest.approx((0.9, 0.9))  # rounds are paired
    assert found["median_gain"] == pytest.approx(0.9 * 1.6)


def test_the_points_of_figures_and_the_other_package_have_fewer_rounds(settings):
    peer = next(one for one in CONTENDERS if one.source == "entmax")
    ours = next(one for one in CONTENDERS if one.name == FIXED)
    rounds = settings | {"rounds": 11, "curve_rounds": 5, "peer_rounds": 3}
    for part, expected in {"cell": [11, 3], "classes": [5, 3]}.items():
        size = maps.Case(64, 3, "sparse", part=part)
        assert [size.rounds(one, rounds) for one in (ours, peer)] == expected


def test_every_step_is_timed_as_often_as_its_rounds_and_a_slow_one_once(settings):
    steps, rounds = {"ours": lambda: None, "peer": lambda: None}, {"ours": 5, "peer": 3}
    pace = settings | {"block_seconds": 1e-6}
    times = step_times(steps, rounds, pace, (1, 2))
    counts = {("ours", 1): 5, ("ours", 2): 5, ("peer", 1): 3, ("peer", 2): 3}
    assert {key: len(values) for key, values in times.items()} == counts
    times = step_times(steps, rounds, pace | {"slow_seconds": 0})
    assert [len(values) for values in times.values()] == [1, 1]


@pytest.mark.medium
def test_the_recorded_tables_are_rebuilt_to_the_letter(settings):
    assert page(pd.read_csv(RESULTS / "maps.csv"), settings) == (RESULTS / "maps.md").read_text()


def test_the_page_begins_with_six_rows_and_ends_with_our_goals():
    begin, _, goals = (RESULTS / "maps.md").read_text().partition("## Our goals")
    rows = [line.split("|")[1].strip() for line in begin.partition("![")[0].splitlines() if line.startswith("|")]
    sizes = ["64 × 100", "64 × 1,000", "512 × 32,000"]
    assert rows[2:] == [f"{kind} of {size}" for kind in ("map", "loss") for size in sizes]
    assert "goal" not in begin
    assert "| verdict " in goals


@pytest.mark.slow
def test_the_figures_are_drawn_beside_the_numbers(settings, tmp_path):
    shutil.copy(RESULTS / "maps.csv", tmp_path)
    write_figures(tmp_path / "maps.csv", settings["curves"])
    for part in settings["curves"]:
        assert f"∝ {part}" in (tmp_path / f"maps_{part}.svg").read_text(encoding="utf-8")


@pytest.mark.medium
def test_a_cell_is_measured_in_every_kind_and_number_of_threads(settings):
    case = maps.Case(2, 3, "sparse", threads=(1, 2), goals={"map": 1.0}, peers=False)
    pace = settings | {"rounds": 2, "block_seconds": 1e-4}
    found = pd.DataFrame(maps.measure(case, pace, 0.95))
    assert len(found) == 2 * sum(one.source != "entmax" for one in CONTENDERS)
    assert (found["median_microseconds"] > 0).all()
    assert found["median_gain"].notna().equals(found["threads"] == 2)
    assert set(found[found["goal"].notna()]["threads"]) == {1}
