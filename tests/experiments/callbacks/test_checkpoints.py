"""Which weights are kept."""

from pathlib import Path
from types import SimpleNamespace

from experiments.callbacks.checkpoints import BestWeights
from experiments.callbacks.curves import Curves


def test_of_equally_good_epochs_the_weights_of_the_first_are_kept_which_the_record_reports():
    curves, saved = Curves(), []
    best = BestWeights(Path("weights.ckpt"), curves)
    trainer = SimpleNamespace(fast_dev_run=False, save_checkpoint=lambda *_, **__: saved.append(len(curves.rows)))
    for accuracy in (0.5, 0.7, 0.6, 0.7):
        curves.rows.append({"test/accuracy": accuracy})
        best.on_train_epoch_end(trainer, SimpleNamespace(selected_by="test/accuracy"))
    assert saved == [1, 2]
