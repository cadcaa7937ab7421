"""The campaign: each stage survives a few trials, and finds an error that a test plants."""

import random
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import sharmix
from experiments.identity import ROOT
from tests.stress import __main__ as command
from tests.stress import fuzz, kills
from tests.stress.outcome import Outcome, Wrong

PLANTED = {
    "try_map": ("sharmix", lambda p: p * 1.0001),
    "try_class_loss": ("fenchel_young_loss", lambda loss: loss + 1e-3),
    "try_entropy": ("sharma_mittal_entropy", lambda entropy: entropy * 1.0001),
}
RELIABILITY = ROOT / "docs" / "reliability.md"


@pytest.mark.medium
def test_random_calls_survive():
    outcome = fuzz.run(60, seed=21, most=3 * len(fuzz.TRIALS))
    assert outcome.tried == 3 * len(fuzz.TRIALS)
    assert not outcome.failures


@pytest.mark.parametrize("name", PLANTED)
def test_a_wrong_number_is_found(name, monkeypatch):
    function, spoil = PLANTED[name]
    original = getattr(sharmix, function)
    monkeypatch.setattr(sharmix, function, lambda *given, **options: spoil(original(*given, **options)))
    place = [trial.__name__ for trial in fuzz.TRIALS].index(name)
    calls = {number: fuzz.RandomCall(number) for number in range(place, 20 * len(fuzz.TRIALS), len(fuzz.TRIALS))}
    doubles = [n for n, call in calls.items() if call.dtype == torch.float64 and call.logits.numel() > 1][:4]
    assert any((fuzz.trial(number) or "").startswith("wrong") for number in doubles)


def test_an_error_in_a_call_that_is_allowed_is_found(monkeypatch):
    monkeypatch.setattr(sharmix, "sharmix", lambda *given, **options: 1 / 0)
    assert "zerodivisionerror" in fuzz.trial(0)


@pytest.mark.slow
def test_a_killed_run_ends_like_an_undisturbed_one_and_another_end_is_found(tmp_path: Path):
    trials = kills.Kills(tmp_path, names=("digits",))
    trials.kill_run(random.Random(0))
    run = trials.runs["digits"]
    curves = run.outputs.glob("*/*/*/metrics.csv")
    for file in curves:
        file.write_text("\n".join(file.read_text().splitlines()[:-1]))
    with pytest.raises(Wrong, match="CSV file"):
        run.check(run.outputs)


def test_the_command_prints_its_table_and_fails_unless_all_survive(monkeypatch, capsys):
    monkeypatch.setattr(command, "STAGES", {"planted": 1, "second": 1})
    for outcome, status in ((Outcome("what", 3, 3), 0), (Outcome("what", 3, 2, 1, 0, ["lost: how"]), 1)):
        for name in command.STAGES:
            stage = SimpleNamespace(run=lambda *_, outcome=outcome: outcome)
            monkeypatch.setitem(sys.modules, f"tests.stress.{name}", stage)
        with pytest.raises(SystemExit) as ended:
            command.main([])
        assert ended.value.code == status
        printed = capsys.readouterr().out
        assert re.search(rf"planted +\| what +\| +3 \| +{outcome.survived} \| +{outcome.lost} ", printed)
    assert {"planted: lost: how", "second: lost: how"} <= {*printed.splitlines()}
    with pytest.raises(SystemExit):
        command.main(["second"])
    assert "Repeat: `python -m tests.stress second --minutes 7 --seed 21`." in capsys.readouterr().out


def test_the_page_of_promises_names_tests_that_there_are_and_every_stage():
    text = RELIABILITY.read_text(encoding="utf-8")
    named = re.findall(r"`(\w+/[\w/]+\.py)`", text)
    assert len(named) > 15
    for file in named:
        assert (ROOT / "tests" / file).is_file(), file
    assert {*re.findall(r"\| `(\w+)` \|", text)} == {*command.STAGES}
