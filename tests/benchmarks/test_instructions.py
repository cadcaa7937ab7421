"""The comparison of the kernel's instruction counts with those on record; callgrind itself is `make instructions`."""

import shutil
from pathlib import Path

import pytest
import yaml

from benchmarks import instructions


def recorded():
    return yaml.safe_load(instructions.RECORD.read_text(encoding="utf-8"))


@pytest.fixture
def counted(monkeypatch):
    """Has the command count the record's numbers, times a factor in one place, with the record's tools."""

    def pretend(factor=1.0, **tools):
        first = next(iter(recorded()["instructions"]))
        counts = recorded()["instructions"] | {first: round(recorded()["instructions"][first] * factor)}
        monkeypatch.setattr(instructions, "toolchain", lambda compiler: recorded()["toolchain"] | tools)
        monkeypatch.setattr(instructions, "count", lambda compiler, flags: counts)
        monkeypatch.setattr("sys.argv", ["instructions"])

    return pretend


def test_the_totals_of_named_parts_are_read():
    written = Path(__file__).with_name("callgrind.out").read_text("utf-8")
    expected = {"64 × 3, map forward": 58837, "64 × 100, q = 1.3, map forward": 422571}
    assert instructions.counts_in(written) == expected


def test_a_change_beyond_the_tolerance_and_a_step_that_is_new_or_gone_are_too_far(capsys):
    recorded = {"same": 10_000, "a little more": 10_000, "more": 10_000, "less": 10_000, "gone": 7}
    now = {"same": 10_000, "a little more": 10_199, "more": 10_201, "less": 9_799, "new": 7}
    assert {*instructions.compare(recorded, now)} == {"more", "less", "gone", "new"}
    assert capsys.readouterr().out.count("<- too far") == 4


def test_equal_counts_pass_and_all_are_shown(counted, capsys):
    counted()
    instructions.main()
    printed = capsys.readouterr().out
    assert all(f"{value:,}" in printed for value in recorded()["instructions"].values())
    assert f"All {len(recorded()['instructions'])} instruction counts are within 2 %" in printed


def test_a_slower_kernel_fails_with_what_to_do(counted):
    counted(factor=1.03)
    with pytest.raises(SystemExit, match=r"1 instruction counts changed by more than 2 %.*make instructions RECORD=1"):
        instructions.main()


def test_what_cannot_be_compared_is_said(counted, capsys):
    counted(factor=1.03, compiler="g++ 99")
    instructions.main()
    printed = capsys.readouterr().out
    assert printed.startswith("NOT CHECKED")
    assert recorded()["toolchain"]["compiler"] in printed
    assert "g++ 99" in printed


def test_without_valgrind_or_compiler_the_reason_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    for missing, hint in {"valgrind": "apt install valgrind", "g++-99": "CXX"}.items():
        monkeypatch.setattr(shutil, "which", lambda name, missing=missing: None if name == missing else name)
        with pytest.raises(instructions.CannotCheck, match=hint):
            instructions.toolchain(["g++-99"])
