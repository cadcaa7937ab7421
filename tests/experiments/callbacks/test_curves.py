"""The rows of a run: one an epoch, and no number out of its range."""

import pytest
import torch

from experiments.callbacks.curves import Curves
from experiments.record import RecordError
from tests.experiments.building import classifier, digits, stock_trainer


def test_a_share_in_percent_is_named_after_the_first_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    module, curves = classifier("softmax"), Curves()
    measured = module.take_metrics
    monkeypatch.setattr(module, "take_metrics", lambda split: measured(split) | {"accuracy": torch.tensor(79.0)})
    with pytest.raises(RecordError, match=r"after epoch 1, test/accuracy=79\.0: it should be between 0 and 1; measure"):
        stock_trainer(callbacks=[curves], enable_checkpointing=True).fit(module, digits())
    assert curves.rows == []
