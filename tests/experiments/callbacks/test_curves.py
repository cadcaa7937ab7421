"""The rows of a run: one an epoch, and no number out of its range."""

from pathlib import Path

import pandas as pd
import pytest
import torch

from experiments.callbacks.curves import EXAMPLES_PER_SECOND, TRAINING_SECONDS, Curves
from experiments.record import RecordError
from tests.experiments.building import classifier, digits, stock_trainer

TIMES = {EXAMPLES_PER_SECOND, TRAINING_SECONDS}


@pytest.mark.medium
def test_a_row_an_epoch_is_kept_and_written(tmp_path: Path) -> None:
    whole = Curves(tmp_path / "whole.csv")
    module = classifier()
    trainer = stock_trainer(callbacks=[whole], enable_checkpointing=True, max_epochs=3)
    trainer.fit(module, digits())
    assert [row["epoch"] for row in whole.rows] == [1, 2, 3]
    assert [row["steps"] for row in whole.rows] == [23, 46, 69]
    last = {name: value.item() for name, value in trainer.callback_metrics.items()}
    assert last.items() <= whole.rows[-1].items()
    assert {"train/loss", "test/accuracy", "q", "r", "learning_rate", *TIMES} <= set(last | whole.rows[-1])
    assert 0 < whole.rows[0][TRAINING_SECONDS] < whole.rows[2][TRAINING_SECONDS] < whole.seconds
    assert whole.rows[0][EXAMPLES_PER_SECOND] > 0
    assert pd.read_csv(whole.file).to_dict("records") == [pytest.approx(row) for row in whole.rows]


def test_a_share_in_percent_is_named_after_the_first_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    module, curves = classifier("softmax"), Curves()
    measured = module.take_metrics
    monkeypatch.setattr(module, "take_metrics", lambda split: measured(split) | {"accuracy": torch.tensor(79.0)})
    with pytest.raises(RecordError, match=r"after epoch 1, test/accuracy=79\.0: it should be between 0 and 1; measure"):
        stock_trainer(callbacks=[curves], enable_checkpointing=True).fit(module, digits())
    assert curves.rows == []
