"""The command that repeats a run."""

import shlex

import pytest
from hydra import compose, initialize_config_dir

from experiments.identity import ROOT, run_id
from reporting.records import read_records
from reporting.report.repeat import CHANGED, OLDER, OWN, Repeats
from tests.reporting.synthetic_records import as_read, changed, make_record
from tests.reporting.synthetic_results import RESULTS


@pytest.fixture(scope="module")
def repeats():
    return Repeats()


def test_the_command_of_each_recorded_run_has_the_same_settings(repeats):
    for experiment in ("airline", "copy"):
        assert {repeats.command(record)[1] for record in read_records(RESULTS, experiment)} == {""}


@pytest.mark.medium
def test_hydra_makes_the_same_settings_of_the_command(repeats):
    records = read_records(RESULTS, "airline")
    learned = next(
        one
        for one in records
        if one.config["activation"].get("r") == 1.75 and "learned" in one.config["activation"]["name"]
    )
    command, _ = repeats.command(learned)
    python, runner, *overrides = shlex.split(command)
    assert (python, runner) == ("python", "run.py")
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        config = compose("config", overrides=overrides)
    assert (run_id(config), config.seed) == (learned.run_id, learned.seed)


def test_settings_that_differ_from_the_experiment_s_are_given(repeats):
    record = make_record("sharmix_learned", 7, "digits", q=1.25, r=1.5, objective="brier")
    record = as_read(changed(record, optimizer={"learning_rate": 0.01}, data={"folder": "/my data"}))
    command, note = repeats.command(record)
    words = shlex.split(command)
    assert words[2:4] == ["experiment=digits", "activation=sharmix_learned"]
    assert {"activation.objective=brier", "optimizer.learning_rate=0.01", "seed=7", "paths.data=/my data"} <= {*words}
    assert note == CHANGED  # a made-up record has few of the settings


def test_older_records_get_the_present_names(repeats):
    (softmax,) = read_records(RESULTS, "cifar100_augmented")
    command, note = repeats.command(softmax)
    assert {"activation=softmax", "trainer.max_epochs=10"} <= {*shlex.split(command)}
    assert note == OLDER
    commands = [repeats.command(record) for record in read_records(RESULTS, "multi30k_early")]
    assert all(note == OLDER for _, note in commands)
    assert any("activation.tau=0.3" in shlex.split(command) for command, _ in commands)


def test_an_experiment_and_an_activation_from_outside(repeats):
    command, note = repeats.command(as_read(make_record("my.module.Map", 3, "mine", alpha=1.5)))
    words = shlex.split(command)
    assert words[2:] == [
        "experiment=mine",
        "activation=custom",
        "activation.name=my.module.Map",
        "activation.alpha=1.5",
        "seed=3",
    ]
    assert note == OWN


def _of(record):
    return record.config["activation"]
