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


@pytest.mark.slow
def test_a_small_part_of_every_stage_survives(tmp_path: Path) -> None:
    for name, trial, seeds in (
        ("kills", Kills(tmp_path / "kills", names=QUICK).kill_run, (0, 1, 2)),
        ("shared_folder", SharedFolder(tmp_path / "shared", QUICK).trial, (0,)),
        ("spoiled_files", SpoiledFiles(tmp_path / "spoiled", QUICK).trial, (0, 1, 2)),
        ("settings_generation", SettingsGeneration(tmp_path / "settings").trial, (0, 1, 2, 3)),
        ("bad_data", BadData(tmp_path / "data").trial, (0, 1, 2, 3)),
    ):
        outcome = summary(name, "", trial, seeds)
        assert (outcome.tried, outcome.survived) == (len(seeds), len(seeds)), outcome.failures


@pytest.mark.slow
def test_planted_faults_are_found(tmp_path: Path) -> None:
    kills = Kills(tmp_path / "kills", remove_the_old_record, QUICK)
    assert summary("kills", "", kills.kill_run, (13, 42)).lost > 0  # both with force=true
    data = BadData(tmp_path / "data", hash_nothing)
    assert summary("bad_data", "", data.trial, range(4)).wrong > 0


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


def test_the_report_names_tests_that_there_are() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)`", command.REPORT.read_text(encoding="utf-8"))
    assert len(named) > 8
    for file in named:
        assert (ROOT / file).is_file(), file
