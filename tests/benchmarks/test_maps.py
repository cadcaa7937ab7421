"""What `make bench` measures, and the figures of its CSV."""

import shutil

import pandas as pd
import pytest

from benchmarks import maps
from benchmarks.contenders import cpu_contenders
from benchmarks.harness import load_settings, step_times, time_columns
from benchmarks.maps_figures import write_figures
from experiments.identity import ROOT

RESULTS = ROOT / "results" / "benchmarks"
CONTENDERS = [*cpu_contenders("map"), *cpu_contenders("loss")]
SETTINGS = load_settings("maps")


def test_the_points_of_figures_and_the_other_package_have_fewer_rounds():
    peer, ours = (next(one for one in CONTENDERS if (one.source == "entmax") is peer) for peer in (True, False))
    rounds = SETTINGS | {"rounds": 11, "curve_rounds": 5, "peer_rounds": 3}
    for part, expected in {"cell": [11, 3], "classes": [5, 3]}.items():
        size = maps.Case(64, 3, "sparse", part=part)
        assert [size.rounds(one, rounds) for one in (ours, peer)] == expected


def test_every_step_is_timed_as_often_as_its_rounds_and_a_slow_one_once():
    steps, rounds = {"ours": lambda: None, "peer": lambda: None}, {"ours": 5, "peer": 3}
    pace = SETTINGS | {"block_seconds": 1e-6}
    times = step_times(steps, rounds, pace, (1, 2))
    counts = {("ours", 1): 5, ("ours", 2): 5, ("peer", 1): 3, ("peer", 2): 3}
    assert {key: len(values) for key, values in times.items()} == counts
    times = step_times(steps, rounds, pace | {"slow_seconds": 0})
    assert [len(values) for values in times.values()] == [1, 1]


def test_rounds_are_compared_one_by_one_and_a_single_time_with_the_median():
    found = [time_columns(times, [1.0, 2.0, 4.0])["median_ratio"] for times in ([3.0, 4.0, 4.0], [4.0])]
    assert found == [2.0, 2.0]


@pytest.mark.slow
def test_the_figures_are_drawn_beside_the_numbers(tmp_path):
    shutil.copy(RESULTS / "maps.csv", tmp_path)
    write_figures(tmp_path / "maps.csv", SETTINGS["curves"])
    for part in SETTINGS["curves"]:
        assert f"∝ {part}" in (tmp_path / f"maps_{part}.svg").read_text(encoding="utf-8")


@pytest.mark.medium
def test_a_cell_is_measured_in_every_kind_and_number_of_threads():
    case = maps.Case(2, 3, "sparse", threads=(1, 2), peers=False)
    pace = SETTINGS | {"rounds": 2, "block_seconds": 1e-4}
    found = pd.DataFrame(maps.measure(case, pace))
    assert len(found) == 2 * sum(one.source != "entmax" for one in CONTENDERS)
    assert (found["median_microseconds"] > 0).all()
