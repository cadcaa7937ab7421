"""A logger that fails is named in a warning, and costs neither the training nor the other loggers."""

import warnings
from typing import Any
from unittest.mock import MagicMock

import pytest
import wandb
from lightning.pytorch.loggers import CSVLogger, WandbLogger

from experiments.callbacks.curves import log_row
from experiments.callbacks.loggers import open_loggers, wandb_logger
from experiments.composition import settings_of as settings
from experiments.errors import ConfigurationError
from tests.experiments.building import Kept

HERE = "tests.experiments.callbacks.test_loggers"
GOOD = {"_target_": f"{Kept.__module__}.Kept"}
KEY = "0123456789" * 4


class Failing(CSVLogger):
    """Fails in one of its methods."""

    def __init__(self, folder: str, method: str) -> None:
        super().__init__(folder)
        setattr(self, method, self.fail)

    def fail(self, *arguments: Any, **options: Any) -> None:
        raise OSError("the disk is gone")


class Unfinished(WandbLogger):
    """A W&B run that cannot be closed."""

    def __init__(self, folder: str) -> None:
        super().__init__(save_dir=folder, offline=True)
        self._experiment = MagicMock()
        self._experiment.finish.side_effect = TimeoutError("Timed out finishing run.")


def logging_to(**groups):
    return settings("experiment=digits").model_copy(update={"logger": groups})


def test_a_logger_that_fails_is_left_out_with_one_warning_that_names_it(tmp_path):
    for method in ("log_hyperparams", "log_metrics", "finalize"):
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            Kept.values.clear()
            bad = {"_target_": f"{HERE}.Failing", "method": method}
            with open_loggers(logging_to(bad=bad, good=GOOD), tmp_path) as loggers:
                for epoch in (1, 2, 3):
                    log_row(loggers, {"epoch": epoch})
        assert [*Kept.values.values()] == [0, 1, 2], method
        (warning,) = (str(each.message) for each in warned if "logger." in str(each.message))
        assert warning.startswith("logger.bad has failed, and the run goes on without it: OSError: the disk is"), method


def test_a_logger_whose_settings_are_wrong_is_refused_and_the_others_are_closed(tmp_path):
    wrong = {"_target_": f"{HERE}.Failing", "methods": "log_metrics"}
    settings = logging_to(good=GOOD, bad=wrong)
    with pytest.raises(ConfigurationError, match=r"logger\.bad"), open_loggers(settings, tmp_path):
        pass
    assert Kept.statuses.pop() == "failed"


def test_wandb_that_cannot_finish_its_run_warns(tmp_path):
    with (
        pytest.warns(UserWarning, match=r"W&B has not closed its run, .*: Timed out"),
        open_loggers(logging_to(wandb={"_target_": f"{HERE}.Unfinished"}), tmp_path),
    ):
        pass


def test_wandb_logs_offline_where_the_key_is_not_accepted(tmp_path, monkeypatch):
    def login(**options):
        raise wandb.errors.AuthenticationError("Failed to authenticate with https://nowhere: no answer")

    monkeypatch.setattr(wandb, "login", login)
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    with pytest.warns(UserWarning, match=r"logger\.wandb logs offline, .* no answer") as warned:
        logger = wandb_logger(str(tmp_path), project="sharmix")
    assert logger._wandb_init["mode"] == "offline"
    assert not any(KEY in str(each.message) for each in warned)
