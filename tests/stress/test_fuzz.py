"""A fixed small part of the campaign's fuzz, and that it would see a wrong number."""

import pytest
import torch

import sharmix
from stress import fuzz, sanitizers

PLANTED = {
    "the map": ("sharmix", lambda p: p * 1.0001),
    "the loss": ("fenchel_young_loss", lambda loss: loss + 1e-3),
    "the entropy": ("sharma_mittal_entropy", lambda entropy: entropy * 1.0001),
}


def test_some_random_calls():
    outcome = fuzz.search(60, seed=21, most=len(fuzz.TRIALS))
    assert outcome.tried > 30
    assert not outcome.failures


@pytest.mark.parametrize("name", PLANTED)
def test_a_wrong_number_is_found(name, monkeypatch):
    function, spoil = PLANTED[name]
    original = getattr(sharmix, function)
    monkeypatch.setattr(sharmix, function, lambda *given, **options: spoil(original(*given, **options)))
    kind = {"the map": "map", "the loss": "class_loss", "the entropy": "entropy"}[name]
    place = list(fuzz.TRIALS).index(kind)
    drawn = range(place, 20 * len(fuzz.TRIALS), len(fuzz.TRIALS))
    doubles = [n for n in drawn if fuzz.Draw(n).dtype == torch.float64 and fuzz.Draw(n).logits.numel() > 1][:4]
    assert any((fuzz.trial(number) or "").startswith("wrong") for number in doubles)


def test_an_error_that_is_no_refusal_is_found(monkeypatch):
    monkeypatch.setattr(sharmix, "sharmix", lambda *given, **options: 1 / 0)
    assert "ZeroDivisionError" in fuzz.trial(0)


def test_the_line_after_which_the_sanitizers_error_is_planted_is_there():
    assert sanitizers._SOUND_READ in (sanitizers.ROOT / "sharmix/csrc/module.cpp").read_text(encoding="utf-8")
