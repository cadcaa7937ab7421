"""Table 6: its verdicts, and that its settings are those of experiments."""

import pandas as pd
import pytest
import yaml

from benchmarks import overhead
from reporting.declaration import Bootstrap
from tests.sharmix.cases import every_case

BOOTSTRAP = Bootstrap(confidence=0.95, resamples=999, seed=0)


@pytest.fixture(scope="module")
def settings():
    return yaml.safe_load(overhead.SETTINGS.read_text(encoding="utf-8"))


def test_the_interval_over_processes_decides():
    with every_case() as case:
        for ratios, goal, verdict in (
            ([0.98, 0.99, 1.0, 1.0, 1.0, 1.005], 1.01, "met"),
            ([1.02, 1.03, 1.02, 1.04, 1.02, 1.02], 1.01, "missed"),
            ([0.97, 1.03, 0.98, 1.04, 1.0, 1.02], 1.01, "undecided"),
            ([0.97, 1.03, 0.98, 1.04, 1.0, 1.02], None, None),
        ):
            with case(ratios=ratios, goal=goal):
                found = overhead.relative_time(ratios, goal, BOOTSTRAP)
                assert found["verdict"] == verdict
                assert min(ratios) <= found["low"] <= found["relative_time"] <= found["high"] <= max(ratios)


def test_the_table_shows_interval_goal_and_verdict(settings):
    about = {"experiment": "airline", "title": "Tweets", "memory_mib": 1.0, "relative_memory": 1.0, "milliseconds": 2.0}
    source = {"processor": "AMD", "cores": 2, "vectors": "AVX2", "backend": "c++", "torch": "2", "commit": "0" * 40}
    rows = [
        about | source | {"dirty": False, "activation": name, **overhead.relative_time(ratios, goal, BOOTSTRAP)}
        for name, ratios, goal in (("softmax", [1.0] * 6, None), ("sparsemax", [1.2] * 6, 1.03))
    ]
    _, *experiments = overhead.table(pd.DataFrame(rows), settings, BOOTSTRAP).split("## ")
    (lines,) = (experiment.splitlines() for experiment in experiments)
    assert lines[0] == "Tweets"
    cells = [[cell.strip() for cell in line.split("|")[1:6]] for line in lines[4:6]]
    assert cells == [
        ["softmax", "2.00", "1.000 (1.000–1.000)", "–", "–"],
        ["sparsemax", "2.00", "1.200 (1.200–1.200)", "≤ 1.03", "missed"],
    ]


@pytest.mark.medium
def test_every_block_composes_under_every_activation(settings):
    with every_case() as case:
        for name, size in settings["blocks"].items():
            for activation in ("softmax", *size.get("besides", {})):
                with case(block=name, activation=activation):
                    overhead.settings_under(size, activation)
