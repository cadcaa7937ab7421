"""A sweep: its failed runs, and the objective that a sweeper optimises."""

import logging
from pathlib import Path

import pytest
from hydra.core.utils import JobReturn, JobStatus
from hydra.types import RunMode
from omegaconf import OmegaConf

from experiments.errors import ConfigurationError
from experiments.record import Record
from experiments.sweep import Sweep, check_objective, measured

CLASSIFIED = Record.model_construct(
    metrics={
        "train": {"accuracy": 0.9},
        "validation": {"accuracy": 0.7, "brier": 0.4},
        "test": {"accuracy": 0.8},
    }
)
TRANSLATED = Record.model_construct(
    metrics={"train": {"loss": 2.0}, "dev": {"bleu": 30.0, "chrf": 50.0}, "test": {"bleu": 31.0}}
)


def test_the_objective_is_the_metric_asked_for_or_the_main_one() -> None:
    for record, wanted, expected in (
        (CLASSIFIED, None, 0.7),
        (CLASSIFIED, "validation/brier", 0.4),
        (CLASSIFIED, "train/accuracy", 0.9),
        (TRANSLATED, None, 30.0),
        (TRANSLATED, "dev/chrf", 50.0),
    ):
        check_objective(wanted, 0.2, None)
        assert measured(wanted, record) == expected, wanted


def test_a_metric_that_was_not_measured_is_named_with_those_that_were() -> None:
    for record, wanted, said in (
        (CLASSIFIED, "validation/luck", "objective=validation/luck was not measured; there are train/accuracy, valid"),
        (CLASSIFIED, "accuracy", "objective=accuracy was not measured"),
        (TRANSLATED, "validation/accuracy", "dev/bleu, dev/chrf"),
    ):
        with pytest.raises(ConfigurationError) as error:
            measured(wanted, record)
        assert said in str(error.value)
        assert "test/" not in str(error.value)


@pytest.mark.parametrize(
    ("objective", "fraction", "named"),
    [("test/accuracy", 0.2, "nothing is chosen on the test split"), (None, 0, "validation_fraction=0 leaves nothing")],
)
def test_nothing_is_chosen_on_the_test_split(objective: str | None, fraction: float, named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        check_objective(objective, fraction, "maximize")
    check_objective(None, None, "maximize")  # as translation, which has dev


def test_the_largest_loss_is_not_searched_for() -> None:
    for objective in ("validation/loss", "validation/few_zero_true"):
        with pytest.raises(ConfigurationError, match=f"objective={objective} is better lower; .*direction=minimize"):
            check_objective(objective, 0.2, "maximize")
        check_objective(objective, 0.2, "minimize")


def test_a_study_with_a_failed_trial_ends_with_an_error_and_names_the_trial_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hydra = {"mode": RunMode.MULTIRUN, "sweeper": {"_target_": "OptunaSweeper", "n_trials": 2}, "launcher": {}}
    config = OmegaConf.create({"hydra": hydra | {"sweep": {"dir": str(tmp_path)}}})
    OmegaConf.save({"best_params": {"activation.q": 1.5}, "best_value": 0.9}, tmp_path / "optimization_results.yaml")
    sweep, optuna = Sweep(), logging.getLogger("hydra_plugins.hydra_optuna_sweeper._impl")
    sweep.on_multirun_start(config)
    optuna.warning("Failed experiment: q=-1.0")
    with pytest.raises(SystemExit, match="the runs named above have failed"):
        sweep.on_multirun_end(config)
    assert capsys.readouterr() == ("best of the study: activation.q=1.5, objective 0.9000\n", "")
    Sweep().on_multirun_end(config)
    optuna.filters.clear()


def test_a_refused_run_leaves_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep, folder = Sweep(), tmp_path / ".refused"
    folder.mkdir()
    places = {"runtime": {"output_dir": str(folder)}, "sweep": {"dir": str(tmp_path)}}
    config = OmegaConf.create({"hydra": {"mode": RunMode.MULTIRUN, **places}})
    failed = JobReturn(["seed=-1"], status=JobStatus.FAILED, _return_value=ConfigurationError("seed=-1 is not allowed"))
    sweep.on_job_end(config, failed)
    assert capsys.readouterr().err == "failed: seed=-1: seed=-1 is not allowed\n"
    assert not folder.exists()
