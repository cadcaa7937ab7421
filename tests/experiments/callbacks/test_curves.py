"""The rows of a run: one an epoch, kept when it resumes, and no number that is none."""

from pathlib import Path
from typing import Any

import lightning.pytorch as L
import pandas as pd
import pytest
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint

from experiments.callbacks.curves import EXAMPLES_PER_SECOND, TRAINING_SECONDS, Curves
from experiments.errors import DivergedError
from experiments.record import RecordError
from tests.experiments.building import ADVICE, classifier, digits, stock_trainer

pytestmark = [pytest.mark.filterwarnings(advice) for advice in ADVICE]
TIMES = {EXAMPLES_PER_SECOND, TRAINING_SECONDS}


def trainer_with(*callbacks: Callback, **options: Any) -> L.Trainer:
    return stock_trainer(
        callbacks=list(callbacks), enable_checkpointing=True, **options
    )  # for `Curves` is a checkpoint


@pytest.mark.medium
def test_a_row_an_epoch_is_kept_and_written_also_when_a_training_resumes(tmp_path: Path) -> None:
    whole = Curves(tmp_path / "whole.csv")
    module = classifier()
    trainer = trainer_with(whole, max_epochs=3)
    trainer.fit(module, digits())
    assert [row["epoch"] for row in whole.rows] == [1, 2, 3]
    assert [row["steps"] for row in whole.rows] == [23, 46, 69]
    last = {name: value.item() for name, value in trainer.callback_metrics.items()}
    assert last.items() <= whole.rows[-1].items()
    assert {"train/loss", "test/accuracy", "q", "r", "learning_rate", *TIMES} <= set(last | whole.rows[-1])
    assert 0 < whole.rows[0][TRAINING_SECONDS] < whole.rows[2][TRAINING_SECONDS] < whole.seconds
    assert whole.rows[0][EXAMPLES_PER_SECOND] > 0

    checkpoint = ModelCheckpoint(dirpath=tmp_path, filename="last")
    first = trainer_with(Curves(), checkpoint, max_epochs=1)
    first.fit(classifier(), digits())
    resumed = Curves(tmp_path / "resumed.csv")
    again = trainer_with(resumed, checkpoint, max_epochs=3)
    again.fit(classifier(), digits(), ckpt_path=tmp_path / "last.ckpt")
    for one, other in zip(whole.rows, resumed.rows, strict=True):
        assert {name: one[name] for name in one if name not in TIMES} == {
            name: other[name] for name in other if name not in TIMES
        }
    for curves in (whole, resumed):
        assert pd.read_csv(curves.file).to_dict("records") == [pytest.approx(row) for row in curves.rows]


def test_a_loss_that_is_no_number_ends_the_training() -> None:
    module, curves = classifier("softmax"), Curves()
    rates = {"learning_rate": 1e38}
    module.optimizer_settings = module.optimizer_settings.model_copy(update=rates)
    with pytest.raises(
        DivergedError, match=r"after epoch 1, (train|test)/loss is (nan|inf): the training has diverged"
    ):
        trainer_with(curves).fit(module, digits())
    assert curves.rows == []


def test_a_share_in_percent_is_named_after_the_first_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    module, curves = classifier("softmax"), Curves()
    measured = module.take_metrics
    monkeypatch.setattr(module, "take_metrics", lambda split: measured(split) | {"accuracy": torch.tensor(79.0)})
    with pytest.raises(RecordError, match=r"after epoch 1, test/accuracy=79\.0: it should be between 0 and 1; measure"):
        trainer_with(curves).fit(module, digits())
    assert curves.rows == []
