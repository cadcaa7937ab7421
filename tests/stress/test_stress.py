"""The campaign itself: a small fixed part of it, faults that it must find, and what it writes."""

import random
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from experiments.identity import ROOT
from stress import __main__ as command
from stress.bad_data import BadData
from stress.kills import Kills
from stress.outcome import Outcome
from stress.settings_generation import SettingsGeneration
from stress.shared_folder import SharedFolder
from stress.spoiled_files import SpoiledFiles
from stress.trials import Lost, Wrong, summary
from tests.stress.faults import hash_nothing, remove_the_old_record

QUICK = ("digits",)


@pytest.mark.medium
def test_every_stage_survives_a_few_trials_and_finds_planted_faults(tmp_path: Path) -> None:
    for name, trial, seeds in (
        ("kills", Kills(tmp_path, names=QUICK).kill_run, (0,)),
        ("shared_folder", SharedFolder(tmp_path, QUICK).trial, (0,)),
        ("spoiled_files", SpoiledFiles(tmp_path, QUICK).trial, (1, 7)),  # goes on, is looked at
        ("settings_generation", SettingsGeneration(tmp_path).trial, (0, 1)),
        ("bad_data", BadData(tmp_path / "data", names=("airline",)).trial, (0, 1)),
    ):
        outcome = summary(name, "", trial, seeds)
        assert (outcome.tried, outcome.survived) == (len(seeds), len(seeds)), outcome.failures
    for trial, seed, found in (
        (Kills(tmp_path, remove_the_old_record, QUICK).kill_run, 157, "lost"),  # with force=true
        (BadData(tmp_path / "same hash", hash_nothing, ("airline",)).trial, 14, "wrong"),
    ):
        outcome = summary("planted", "", trial, (seed,))
        assert getattr(outcome, found) == 1, outcome.failures


def test_trials_are_counted_by_how_they_end(capfd: pytest.CaptureFixture[str]) -> None:
    def trial(draw: random.Random) -> None:
        raise ends.pop(draw.randrange(1))

    ends: list[BaseException] = [Lost("a row"), Wrong("a number"), OSError("a disk"), Lost("a record")]
    outcome = summary("planted", "what", trial, (1, 2, 3, 4))
    assert (outcome.tried, outcome.survived, outcome.lost, outcome.wrong) == (4, 0, 2, 1)
    assert sorted(outcome.failures)[-1] == "wrong: a number [python -m stress planted --minutes 0 --seed 2]"
    assert "oserror: a disk" in capfd.readouterr().err


def test_the_command_writes_its_figures_and_fails_unless_all_survive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "reliability.md"
    report.write_text(f"before\n{command.MARKS[0]}\nold figures\n{command.MARKS[1]}\nafter\n")
    monkeypatch.setattr(command, "REPORT", report)
    monkeypatch.setattr(command, "STAGES", {"planted": 1})
    for outcome, status in ((Outcome("what", 3, 3), 0), (Outcome("what", 3, 2, 1, 0, ["lost: how"]), 1)):
        monkeypatch.setitem(sys.modules, "stress.planted", SimpleNamespace(run=lambda *_, outcome=outcome: outcome))
        with pytest.raises(SystemExit) as ended:
            command.main([])
        assert ended.value.code == status
        text = report.read_text()
        assert re.search(rf"planted +\| what +\| +3 \| +{outcome.survived} \| +{outcome.lost} ", text)
        assert text.startswith("before\n")
        assert text.endswith("after\n")
        assert "old figures" not in text
    assert "lost: how" in capsys.readouterr().out


def test_the_report_names_tests_that_there_are_and_every_stage() -> None:
    text = command.REPORT.read_text(encoding="utf-8")
    named = re.findall(r"`(\w+/[\w/]+\.py)`", text)
    assert len(named) > 20
    for file in named:
        assert (ROOT / file).is_file() or (ROOT / "tests" / file).is_file(), file
    assert {*re.findall(r"\| `(\w+)` \|", text)} == {*command.STAGES}
