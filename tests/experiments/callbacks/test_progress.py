"""The line that a run prints after an epoch."""

import re

import pytest

from experiments.callbacks.curves import Curves
from experiments.callbacks.progress import EpochLines, described, epoch_line, progress_callbacks
from experiments.settings import ActivationSettings
from tests.experiments.building import ADVICE, classifier, digits, stock_trainer

pytestmark = [pytest.mark.filterwarnings(advice) for advice in ADVICE]
ROW = {
    "epoch": 3,
    "steps": 69,
    "learning_rate": 1e-3,
    "train/loss": 2.3141,
    "train/accuracy": 0.5,
    "test/accuracy": 0.3117,
    "test/sparsity": 0.718,
    "q": 1.4142,
    "r": 1.6251,
}


def line(row: dict[str, float], seconds: float = 102.4, epochs: int | None = 50, headline: str = "accuracy") -> str:
    curves = Curves()
    curves.load_state_dict({"rows": [{"epoch": 2}, row], "seconds": seconds})
    return epoch_line(curves, epochs, headline)


def test_a_line_holds_the_loss_the_headline_the_sparsity_and_the_learned_orders() -> None:
    expected = "epoch 3/50  loss 2.31  test accuracy 0.312  sparsity 0.72  q 1.41  r 1.63  1:42"
    assert line(ROW) == expected


def test_a_line_shows_what_there_is() -> None:
    dev = {"epoch": 1, "train/loss": 0.05, "dev/bleu": 31.25, "test/bleu": 30.0, "dev/sparsity": 0.9996, "tau": 0.5}
    assert line(dev, 59.6, 7, "bleu") == "epoch 1/7  loss 0.05  dev bleu 31.250  sparsity 1.00  tau 0.50  1:00"
    assert line({"epoch": 12, "test/accuracy": 1.0}, 3599.7, None) == "epoch 12  test accuracy 1.000  60:00"


def test_validation_is_shown_rather_than_test() -> None:
    assert "validation accuracy 0.250" in line(ROW | {"validation/accuracy": 0.25, "validation/sparsity": 0.1})
    assert "sparsity 0.10" in line(ROW | {"validation/accuracy": 0.25, "validation/sparsity": 0.1})


def test_a_run_prints_one_line_an_epoch(capsys: pytest.CaptureFixture[str]) -> None:
    curves = Curves()
    lines = EpochLines(curves, "\\[2/3] ")
    stock_trainer(callbacks=[curves, lines], enable_checkpointing=True).fit(classifier(), digits())
    printed = [text for text in capsys.readouterr().out.splitlines() if text.startswith("[2/3] ")]
    assert len(printed) == 2
    for number, text in enumerate(printed, 1):
        form = rf"\[2/3\] epoch {number}/2  loss \S+  test accuracy 0\.\d+  sparsity 0\.\d+  q 1\.\d+  r 1\.\d+  0:\d\d"
        assert re.fullmatch(form, text), text


def test_the_progress_setting_decides_what_is_shown() -> None:
    kinds = {kind: [type(one).__name__ for one in progress_callbacks(kind, Curves(), "")] for kind in ("lines", "none")}
    assert kinds == {"lines": ["EpochLines"], "none": []}
    for prefix in ("", "[1/2] "):  # pytest's output is no terminal
        assert [type(one).__name__ for one in progress_callbacks("auto", Curves(), prefix)] == ["EpochLines"]
    assert [type(one).__name__ for one in progress_callbacks("bar", Curves(), "[1/2] ")] == ["RichProgressBar"]


def test_an_activation_is_described_by_its_parameters() -> None:
    assert described(ActivationSettings(name="softmax")) == "softmax"
    assert described(ActivationSettings(name="sharmix_learned", q=1.25, r=1.5)) == "sharmix_learned q=1.25 r=1.5"
