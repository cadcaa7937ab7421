"""Table 6: its intervals, and that its settings are those of experiments."""

import pytest

from benchmarks import overhead
from benchmarks.harness import load_settings
from benchmarks.training_step import seconds_per_step
from experiments.settings import build


def test_the_interval_over_processes_holds_their_median():
    ratios = [0.97, 1.03, 0.98, 1.04, 1.0, 1.02]
    found = overhead.relative_time(ratios, 0.95)
    assert found["relative_time"] == pytest.approx(1.01)
    assert min(ratios) <= found["low"] < found["relative_time"] < found["high"] <= max(ratios)


@pytest.mark.medium
def test_every_block_composes_under_every_activation():
    for size in load_settings("overhead")["blocks"].values():
        for activation in ("softmax", *size.get("besides", [])):
            build(overhead.settings_under(size, activation).data, "data")


@pytest.mark.medium
def test_a_block_takes_the_steps_of_a_run():
    size = {"experiment": "airline", "overrides": ["threads=1"], "steps": 3}
    (block,) = overhead.blocks(size, ["softmax"]).values()
    assert seconds_per_step(block, 3) > 0
