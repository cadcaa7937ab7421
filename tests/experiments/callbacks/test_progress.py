"""The line of an epoch, in a file and in a terminal, and no number in it that is out of its range."""

import io
import re

import pytest
import torch
from rich.console import Console

from experiments.callbacks.curves import Curves
from experiments.callbacks.progress import Progress, described, numbers
from experiments.durations import duration
from experiments.record import RecordError
from experiments.settings import ActivationSettings
from tests.experiments.building import classifier, digits, stock_trainer
from tests.sharmix.cases import for_every

ROW = {"epoch": 3, "train/loss": 2.3141, "test/accuracy": 0.3117, "test/sparsity": 0.718, "q": 1.4142, "r": 1.6251}


def test_a_line_holds_the_loss_the_numbers_of_validation_or_test_and_the_learned_orders():
    assert numbers(ROW, "accuracy") == ["loss 2.314", "accuracy 0.312", "sparsity 0.72", "q 1.41", "r 1.63"]
    shown = numbers(ROW | {"validation/accuracy": 0.25, "validation/sparsity": 0.1}, "accuracy")
    assert shown[1:3] == ["accuracy 0.250", "sparsity 0.10"]
    dev = {"train/loss": 0.05, "dev/bleu": 31.25, "test/bleu": 30.0, "dev/sparsity": 0.9996, "tau": 0.5}
    assert numbers(dev, "bleu") == ["loss 0.050", "bleu 31.250", "sparsity 1.00", "tau 0.50"]


def printed(progress, encoding="utf-8", terminal=False, checkpoint=None, width=120):
    """What a training of two epochs prints, from a checkpoint if one is given."""
    out = io.TextIOWrapper(io.BytesIO(), encoding, newline="")
    options = {"force_terminal": terminal, "color_system": None, "soft_wrap": True, "width": width}
    curves, console = Curves(), Console(file=out, **options)
    callback = Progress(curves, console, "[2/3] ", progress)
    trainer = stock_trainer(callbacks=[curves, callback], enable_checkpointing=True)
    trainer.fit(classifier(), digits(), ckpt_path=checkpoint)
    out.seek(0)
    return out.read()


@pytest.mark.medium
def test_a_resumed_run_estimates_the_time_left_from_its_own_epochs(tmp_path):
    trainer = stock_trainer(max_epochs=1)
    trainer.fit(classifier(), digits())
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    assert re.fullmatch(r"\[2/3\] epoch 2/2 .* · 0 s left\n", printed("lines", checkpoint=tmp_path / "last.ckpt"))


@pytest.mark.medium
def test_the_line_moves_within_an_epoch_where_it_is_asked_for():
    assert "\r" not in printed("auto")
    moving = printed("bar", terminal=True)
    assert "epoch 1/2" in moving.split("\r")[1]
    assert moving.count("\n") == 2


@for_every(width=[40, 60, 80, 100, 120])
def test_no_row_of_a_terminal_scrolls(width):
    pieces = re.split("[\r\n]", re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", printed("bar", terminal=True, width=width)))
    assert max(map(len, pieces)) < width
    last = [piece for piece in pieces if piece][-1]
    assert "epoch 2/2" in last
    assert last.endswith("s left")
    assert ("━" in last) == (width > 80)
    assert ("sparsity" in last) == (width > 60)


def test_an_interrupted_line_is_cleared(monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Curves, "on_train_epoch_end", interrupt)
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, color_system=None, width=80)
    curves = Curves()
    trainer = stock_trainer(callbacks=[curves, Progress(curves, console, "", "bar")], enable_checkpointing=True)
    with pytest.raises((SystemExit, KeyboardInterrupt)):
        trainer.fit(classifier(), digits())
    assert out.getvalue().endswith("\x1b[2K\r")


def test_an_ascii_terminal_gets_a_bar_of_ascii():
    assert re.search("epoch 1/2 =====----- loss .* ; [0-9]+ s left", printed("lines", "ascii"))


def test_times_are_said_as_people_say_them():
    times = {3.4: "3 s", 59.7: "1 min", 110: "2 min", 3540: "59 min", 3600: "1 h", 9000: "2 h 30 min", 39_540: "11 h"}
    assert [duration(seconds) for seconds in times] == list(times.values())


def test_an_activation_is_described_by_its_parameters():
    assert described(ActivationSettings(name="softmax")) == "softmax"
    learned = ActivationSettings(name="sharmix_learned", q=1.25, r=1.5, temperature=1.0, objective="log")
    assert described(learned) == "sharmix_learned q=1.25 r=1.5 log"
    assert described(learned.model_copy(update={"objective": "fenchel_young"})) == "sharmix_learned q=1.25 r=1.5"
    assert described(learned.model_copy(update={"temperature": 0.5})).endswith("temperature=0.5 log")


def test_a_share_in_percent_is_named_after_the_first_epoch(monkeypatch):
    module, curves = classifier("softmax"), Curves()
    measured = module.take_metrics
    monkeypatch.setattr(module, "take_metrics", lambda split: measured(split) | {"accuracy": torch.tensor(79.0)})
    with pytest.raises(RecordError, match=r"after epoch 1, test/accuracy=79\.0: it should be between 0 and 1; measure"):
        stock_trainer(callbacks=[curves], enable_checkpointing=True).fit(module, digits())
    assert curves.rows == []
