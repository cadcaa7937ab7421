"""Goals of `make bench`, and the tables and figures of its CSV."""

import shutil

import numpy as np
import pandas as pd
import pytest
import yaml

from benchmarks import maps
from benchmarks.contenders import FIXED, LEARNED, cpu_contenders
from benchmarks.harness import at_least, at_most, step_times
from benchmarks.maps_report import judged_tables, not_met, report
from experiments.identity import ROOT
from reporting.declaration import Bootstrap
from tests.sharmix.cases import every_case

BOOTSTRAP = Bootstrap(confidence=0.95, resamples=999, seed=0)
RESULTS = ROOT / "results" / "benchmarks"
GROWTH = "Growth with classes and rows"
CONTENDERS = [*cpu_contenders("map"), *cpu_contenders("loss")]
SOURCES = {one.name: one.source for one in CONTENDERS}
PROVENANCE = {
    "processor": "AMD",
    "cores": 2,
    "vectors": "AVX2",
    "backend": "c++",
    "torch": "2.15.0",
    "entmax": "1.3",
    "commit": "0123456789abcdef",
    "dirty": False,
}


@pytest.fixture(scope="module")
def settings():
    return yaml.safe_load(maps.SETTINGS.read_text(encoding="utf-8"))


def row(contender, ratio, **changed):
    """A row of the CSV: a map of 64 × 3 whose time is `ratio` times 100 µs."""
    spread = {
        f"{place}_{name}": scale * value * factor
        for name, scale, value in (("microseconds", 100, ratio), ("ratio", 1, ratio))
        for place, factor in (("median", 1), ("lowest", 0.9), ("highest", 1.1))
    }
    case = {"part": "cell", "kind": "map", "rows": 64, "classes": 3, "regime": "sparse", "dtype": "float32"}
    found = {"contender": contender, "source": SOURCES[contender], "threads": 1, "goal": np.nan}
    return case | found | spread | PROVENANCE | changed


def data_with(rows):
    """The CSV with these rows beside a cell of 64 × 1000 that meets every goal."""
    met = [
        row(one.name, 200.0 if one.source == "entmax" else 1.0, kind=one.kind, classes=1000, source=one.source)
        for one in CONTENDERS
    ]
    return pd.DataFrame(met + rows)


def curve(contender, power, part, **changed):
    """Points of a figure: time ∝ x^power from 10,000 on, a constant below."""
    return [
        row(contender, max(x, 10_000) ** power, part=part, **{"rows": 64, "classes": 64, part: x}, **changed)
        for x in (100, 1_000, 10_000, 100_000, 1_000_000)
    ]


def test_the_whole_interval_decides():
    with every_case() as case:
        for low, high, below, above in (
            (0.9, 1.0, "met", "undecided"),
            (0.9, 1.1, "undecided", "undecided"),
            (1.0, 1.1, "undecided", "met"),
            (1.1, 1.2, "missed", "met"),
            (0.8, 0.9, "met", "missed"),
            (np.nan, np.nan, "undecided", "undecided"),
        ):
            with case(low=low, high=high):
                assert (at_most(1.0, low, high), at_least(1.0, low, high)) == (below, above)


def test_every_contender_of_ours_has_one_goal_in_a_cell_with_goals(settings):
    goals = {
        (cell.classes, cell.regime, one.kind, one.name): cell.goal(one)
        for cell in maps.cases(settings)
        for one in CONTENDERS
        if cell.goals
    }
    ours = {key: goal for key, goal in goals.items() if SOURCES[key[-1]] == "sharmix"}
    assert not [key for key, goal in ours.items() if goal is None]
    assert not [key for key, goal in goals.items() if key not in ours and goal is not None]
    with every_case() as case:
        for key, goal in {
            (3, "sparse", "map", FIXED): 1.3,
            (3, "sparse", "loss", LEARNED): 1.5,
            (100, "sparse", "map", "SharMiX (1.3, 1.5)"): 1.8,
            (1000, "sparse", "map", LEARNED): 0.9,
            (32000, "sparse", "loss", "sparsemax"): 0.3,
            (32000, "sparse", "loss", "SharMiX (1.75, 1.25)"): 2.5,
            (10000, "dense", "map", "SharMiX (1.75, 1.25)"): 10,
        }.items():
            with case(key=key):
                assert ours[key] == goal


def test_what_misses_its_goal_is_told_with_its_floor(settings):
    rows = [
        row("softmax", 1.0),
        row("relu", 0.8),
        row("Python node", 1.2),
        row(FIXED, 1.4, goal=1.3),
        row("sparsemax", 1.3, goal=1.3),
        row(LEARNED, 1.75, goal=1.5),
    ]
    missed = not_met(judged_tables(data_with(rows), settings))
    assert missed["contender"].tolist() == [FIXED, LEARNED, LEARNED]
    assert missed["table"].tolist() == ["Map against softmax"] * 2 + ["Learned orders against fixed"]
    assert missed["measured"].tolist() == ["1.40 (1.26–1.54)", "1.75 (1.57–1.93)", "1.25"]
    assert missed["goal"].tolist() == ["≤ 1.3", "≤ 1.5", "≤ 1.15"]
    assert missed["floor"].tolist() == ["relu 0.80, Python node 1.20"] * 2 + [""]


def test_more_threads_are_judged_by_the_baselines_gain_in_the_same_rounds(settings):
    base = [1.9, 1.2, 1.6, 1.8, 1.4, 1.7, 1.5]
    gains = {"softmax": 1.0, FIXED: 1.1, "sparsemax": 0.9, "1.5-entmax": 1.0}
    wobble = [1.0, 0.9, 1.1, 0.95, 1.05, 0.9, 1.1]
    rows = []
    for contender, factor in gains.items():
        own = [factor * one * (w if contender == "1.5-entmax" else 1) for one, w in zip(base, wobble, strict=True)]
        rows += [row(contender, 1.0), row(contender, 1.0, threads=2, **maps.gain(own, base, BOOTSTRAP))]
    table = judged_tables(data_with(rows), settings)["Two threads against one"].set_index("contender")
    assert table["verdict"].to_dict() == {
        "softmax": "",
        FIXED: "met",
        "sparsemax": "missed",
        "1.5-entmax": "undecided",
    }
    assert table["goal"].tolist() == ["", "≥ 1.60", "≥ 1.60", "≥ 1.60"]
    assert table.loc[FIXED, "measured"] == "1.76 (1.32–2.09)"


def test_growth_is_the_slope_of_the_upper_decades(settings):
    rows = [*curve("softmax", 1.2, "classes"), *curve(FIXED, 1.0, "classes"), *curve("sparsemax", 1.07, "classes")]
    table = judged_tables(data_with(rows), settings)[GROWTH].set_index("contender")
    assert table["measured"].to_dict() == {"softmax": "1.200", FIXED: "1.000", "sparsemax": "1.070"}
    assert table["verdict"].to_dict() == {"softmax": "", FIXED: "met", "sparsemax": "missed"}


def test_the_points_of_figures_and_the_other_package_have_fewer_rounds(settings):
    peer = next(one for one in CONTENDERS if one.source == "entmax")
    ours = next(one for one in CONTENDERS if one.name == FIXED)
    rounds = settings | {"rounds": 11, "curve_rounds": 5, "peer_rounds": 3}
    with every_case() as case:
        for part, expected in {"cell": [11, 3], "classes": [5, 3]}.items():
            with case(part=part):
                size = maps.Case(64, 3, "sparse", part=part)
                assert [size.rounds(one, rounds) for one in (ours, peer)] == expected
    pace = settings | {"block_seconds": 1e-6}
    steps = {"ours": lambda: None, "peer": lambda: None}
    times = step_times(steps, {"ours": 5, "peer": 3}, pace, (1, 2))
    assert {key: len(values) for key, values in times.items()} == {
        ("ours", 1): 5,
        ("ours", 2): 5,
        ("peer", 1): 3,
        ("peer", 2): 3,
    }
    times = step_times(steps, {"ours": 5, "peer": 3}, pace | {"slow_seconds": 0})
    assert [len(values) for values in times.values()] == [1, 1]


@pytest.mark.slow
def test_the_recorded_tables_are_rebuilt_to_the_letter_with_their_figures(settings, tmp_path):
    shutil.copy(RESULTS / "maps.csv", tmp_path)
    report(tmp_path / "maps.csv", settings)
    assert (tmp_path / "maps.md").read_text() == (RESULTS / "maps.md").read_text()
    for part in settings["curves"]:
        assert f"∝ {part}" in (tmp_path / f"maps_{part}.svg").read_text(encoding="utf-8")


@pytest.mark.medium
def test_a_cell_is_measured_in_every_kind_and_number_of_threads(settings):
    case = maps.Case(2, 3, "sparse", threads=(1, 2), goals={"map": 1.0}, peers=False)
    pace = settings | {"rounds": 2, "block_seconds": 1e-4}
    found = pd.DataFrame(maps.measure(case, pace, BOOTSTRAP))
    assert len(found) == 2 * sum(source != "entmax" for source in (one.source for one in CONTENDERS))
    assert (found["median_microseconds"] > 0).all()
    assert found["median_gain"].notna().equals(found["threads"] == 2)
    assert set(found[found["goal"].notna()]["threads"]) == {1}
