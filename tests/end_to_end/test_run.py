"""The runner as a person uses it: composing, refusing, skipping, resuming, sweeping."""

import json
import os
import re
import signal

import pandas as pd
import pytest
import torch

from experiments import load_run
from experiments.errors import UserError
from tests.end_to_end.runner import (
    QUICK,
    VARIABLES,
    Started,
    command_line,
    only_record,
    records,
    run,
    succeed,
    torchrun,
    untimed,
)

pytestmark = pytest.mark.medium


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """One finished run, for the tests that only look at it."""
    outputs = tmp_path_factory.mktemp("finished") / "outputs"
    status, printed = run(outputs, *QUICK)
    assert status == 0, printed
    lines = printed.splitlines()
    assert lines[0] == "digits sharmix_learned q=1.25 r=1.5 seed 21 · train 1,438 · test 359 · cpu"
    assert re.fullmatch(r"outputs/digits/sharmix_learned-[0-9a-f]{12}/seed-21", lines[1])
    assert [line.split(" ━")[0] for line in lines[2:5]] == ["epoch 1/3", "epoch 2/3", "epoch 3/3"]
    assert all(" q 1." in line and " accuracy 0." in line and line.endswith(" s left") for line in lines[2:5])
    assert lines[5].startswith(f"{lines[0].partition(' ·')[0]} · accuracy 0.")
    assert lines[6] == f"{lines[1]}/record.json"
    assert max(map(len, lines)) <= 120
    return outputs


def test_a_run_is_recorded_whole(finished):
    record, (file,) = only_record(finished), records(finished)
    assert {path.name for path in file.parent.iterdir()} == {"record.json", "metrics.csv", "weights.ckpt"}
    rows = pd.read_csv(file.with_name("metrics.csv")).to_dict("records")
    assert rows == [pytest.approx(row) for row in record["curves"]]
    assert record["seed"] == 21
    assert record["config"]["activation"]["name"] == "sharmix_learned"
    assert record["config"]["trainer"]["max_epochs"] == 3
    assert [row["epoch"] for row in record["curves"]] == [1, 2, 3]
    assert [row["steps"] for row in record["curves"]] == [23, 46, 69]
    seconds = [row["training_seconds"] for row in record["curves"]]
    assert 0 < seconds[0] < seconds[2] < record["wall_time_seconds"]
    assert all(row["examples_per_second"] > 0 for row in record["curves"])
    assert all(1.25 < row["q"] < 2 and 1.5 < row["r"] < 2 for row in record["curves"])
    for split in ("train", "test"):
        metrics = record["metrics"][split]
        assert 0.3 < metrics["accuracy"] <= 1
        assert metrics["coverage"] + metrics["zero_true"] == pytest.approx(1)
        assert metrics["support"] == pytest.approx(10 * (1 - metrics["sparsity"]), rel=1e-5)
        assert metrics["accuracy"] == record["curves"][-1][f"{split}/accuracy"]
    assert len(record["data"]["content_hash"]) == 64
    assert record["environment"]["packages"]["torch"]
    assert record["environment"]["hardware"]["cores"] >= 1
    assert len(record["code"]["digest"]) == 64
    assert len(record["weights_hash"]) == 64
    assert record["wall_time_seconds"] > 0
    assert 50 < record["peak_memory_mib"] < 100_000
    assert 0.5 < record["environment"]["hardware"]["memory_gib"] < 10_000


def test_the_weights_of_the_reported_epoch_stay_and_load(finished, tmp_path):
    (file,) = records(finished)
    module, data = load_run(file.parent)
    examples = data.data.test
    inputs, targets = examples.read(torch.arange(len(examples.targets)), torch.zeros(0))
    with torch.no_grad():
        accuracy = (module.probabilities(inputs).argmax(-1) == targets).double().mean().item()
    assert accuracy == pytest.approx(only_record(finished)["metrics"]["test"]["accuracy"], abs=1e-6)
    assert not any("optimizer" in key for key in torch.load(file.with_name("weights.ckpt"), weights_only=True))

    succeed(tmp_path / "outputs", *QUICK, "keep_weights=false", "trainer.max_epochs=1")
    (file,) = records(tmp_path / "outputs")
    assert not file.with_name("weights.ckpt").exists()
    with pytest.raises(UserError, match="keep_weights=true"):
        load_run(file.parent)


def test_wandb_without_a_key_is_offline_with_one_run_a_job_whose_numbers_are_its_seeds_alone(
    finished, tmp_path, monkeypatch
):
    for name in [name for name in os.environ if name.startswith(("WANDB_", "NETRC"))]:
        monkeypatch.delenv(name)
    (tmp_path / "home").mkdir()  # as on a machine where W&B was never used
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "WANDB_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.setitem(VARIABLES, "WANDB_SILENT", "false")
    status, printed = run(tmp_path / "outputs", "-m", *QUICK, "logger=wandb", "seed=42,21", "tags=[mine]")
    assert status == 0, printed
    found = {record["seed"]: record for record in (json.loads(file.read_text()) for file in records(tmp_path))}
    assert found[21]["weights_hash"] == only_record(finished)["weights_hash"]
    assert len({path.name for path in (tmp_path / "outputs").rglob("offline-run-*")}) == len(found) == 2
    assert "[1/2] digits sharmix_learned q=1.25 r=1.5 seed 42 ·" in printed
    assert "[2/2] epoch 3/3 " in printed
    assert "wandb: Run data is saved locally in" in printed
    assert "WARNING" not in printed
    assert "Run summary" not in printed
    assert max(len(line) for line in printed.splitlines() if not line.startswith("wandb: ")) <= 120


def test_a_training_that_ends_in_the_middle_of_an_epoch_is_measured_there(tmp_path):
    succeed(tmp_path / "outputs", *QUICK, "trainer.max_steps=30")  # an epoch has 23
    rows = only_record(tmp_path / "outputs")["curves"]
    assert [(row["epoch"], row["steps"]) for row in rows] == [(1, 23), (2, 30)]
    assert rows[0]["test/accuracy"] != rows[1]["test/accuracy"]
    status, printed = command_line(tmp_path / "outputs", *QUICK, "trainer.max_steps=30", "trainer.min_epochs=2")
    assert (status, "or its last one was not measured; choose" in printed) == (1, True), printed  # Lightning skips it
    assert only_record(tmp_path / "outputs")["curves"] == rows


def test_options_of_the_trainer_work_from_the_command_line(tmp_path):
    options = ("trainer.limit_train_batches=6", "trainer.profiler=simple", "trainer.accumulate_grad_batches=2")
    options += ("callbacks=early_stopping", "callbacks.early_stopping.patience=1", "data.validation_fraction=0.1")
    options += ("+callbacks.early_stopping.min_delta=100",)  # no epoch is that much better than the first
    printed = succeed(tmp_path / "outputs", *QUICK, *options)
    assert "run_training_batch" in printed  # what the profiler has measured
    record = only_record(tmp_path / "outputs")
    assert [row["steps"] for row in record["curves"]] == [3, 6]
    assert set(record["metrics"]) == {"train", "validation", "test"}


COPIES = (
    *("attention=sharmix", "model.dropout=0.1", "module.average_decay=0.01", "trainer.max_epochs=2"),
    *("trainer.limit_train_batches=12", "data.train_size=2000", "data.evaluation_size=20"),
)
MORTAL = """
import os, random, signal
import numpy, torch
from sharmix import AlphaReLU, SharMiX

class Mortal:
    "Draws random numbers wherever there are any, and dies at a training loss whose number the environment says."
    losses = 0

    def loss(self, logits, *arguments, **keywords):
        if torch.is_grad_enabled():
            self.losses += 1
            if str(self.losses) == os.environ.get("DIES_AT"):
                os.kill(os.getpid(), signal.SIGKILL)
            logits = logits + 0.1 * torch.randn_like(logits)
            logits = logits * random.uniform(0.9, 1.1) * numpy.random.uniform(0.9, 1.1)
        return super().loss(logits, *arguments, **keywords)

class MortalSharMiX(Mortal, SharMiX):
    def __init__(self):
        super().__init__(learned=True)

class MortalAlphaReLU(Mortal, AlphaReLU):
    pass
"""


@pytest.mark.parametrize(
    ("activation", "overrides", "dies_at"),  # the number of a loss in the second epoch, of 23 and of 12 steps
    [
        ("SharMiX", ("experiment=digits", "trainer.max_epochs=3"), 33),
        # An output layer has 16 blocks.
        pytest.param("AlphaReLU", ("experiment=copy", *COPIES), 16 * (12 + 5), marks=pytest.mark.slow),
    ],
    ids=["digits", "translation"],
)
def test_killed_in_mid_epoch_a_run_resumes_to_the_same_bits(activation, overrides, dies_at, tmp_path, monkeypatch):
    (tmp_path / "mortal.py").write_text(MORTAL)
    monkeypatch.syspath_prepend(tmp_path)
    overrides += ("activation=custom", f"activation.name=mortal.Mortal{activation}", "checkpoint_seconds=0")
    succeed(tmp_path / "whole", *overrides, "data.num_workers=0")
    whole = only_record(tmp_path / "whole")

    overrides = (*overrides, "data.num_workers=2")  # who reads must not matter
    status, printed = Started(tmp_path / "killed", *overrides, DIES_AT=str(dies_at)).end()
    assert status == -signal.SIGKILL, printed
    assert not records(tmp_path / "killed")
    (checkpoint,) = (tmp_path / "killed").rglob("last*.ckpt")
    assert torch.load(checkpoint, weights_only=True)["epoch"] == 0

    printed = succeed(tmp_path / "killed", *overrides)
    assert "goes on from epoch 2" in printed
    resumed = only_record(tmp_path / "killed")
    assert resumed["weights_hash"] == whole["weights_hash"]
    assert resumed["metrics"] == whole["metrics"]
    assert untimed(resumed["curves"]) == untimed(whole["curves"])
    (csv,) = (tmp_path / "killed").rglob("metrics.csv")
    assert pd.read_csv(csv).to_dict("records") == [pytest.approx(row) for row in resumed["curves"]]


@pytest.mark.parametrize(
    "change", [pytest.param("module.compile=true", marks=pytest.mark.slow), "trainer.precision=bf16-mixed"]
)
def test_a_network_compiled_or_in_half_precision_ends_nearly_the_same(change, finished, tmp_path):
    succeed(tmp_path / "outputs", *QUICK, change)
    metrics, plain = only_record(tmp_path / "outputs")["metrics"]["test"], only_record(finished)["metrics"]["test"]
    assert metrics["loss"] == pytest.approx(plain["loss"], rel=0.02)
    assert metrics["accuracy"] == pytest.approx(plain["accuracy"], abs=0.02)


@pytest.mark.parametrize("started_by", ["torchrun", pytest.param("lightning", marks=pytest.mark.slow)])
def test_two_processes_and_two_passes_train_as_one(started_by, tmp_path):
    one = ("experiment=digits_lt", *QUICK[1:], "data.sampler=square_root")
    two = (*one, "trainer.devices=2", "trainer.accumulate_grad_batches=2")
    succeed(tmp_path / "one", *one)
    if started_by == "lightning":
        status, printed = run(tmp_path / "two", *two)
    else:
        ranks = [Started(tmp_path / "two", *two, **variables) for variables in torchrun(processes=2)]
        (status, printed), (second, silent) = (rank.end() for rank in ranks)
        assert second == 0, silent
        assert not [line for line in silent.splitlines() if "digits_lt" in line or line.startswith("epoch")]
    assert (status, printed.count("record.json")) == (0, 1), printed
    curves = [untimed(only_record(tmp_path / name)["curves"]) for name in ("one", "two")]
    for expected, row in zip(*curves, strict=True):
        assert row == pytest.approx(expected, rel=1e-3, abs=3e-3)  # of 359 images one may fall to the other side


@pytest.mark.slow
def test_two_processes_translate_as_one(tmp_path):
    # 200 steps in double precision, because the training multiplies a difference in rounding by a thousand.
    one = ("experiment=copy", "activation=sharmix_learned", "trainer.max_epochs=4", "trainer.limit_train_batches=50")
    one += ("data.evaluation_size=40", "trainer.precision=64-true")
    succeed(tmp_path / "one", *one)
    two = (*one, "trainer.devices=2")
    for rank in [Started(tmp_path / "two", *two, **variables) for variables in torchrun(processes=2)]:
        status, printed = rank.end()
        assert status == 0, printed
    curves = [untimed(only_record(tmp_path / name)["curves"]) for name in ("one", "two")]
    assert curves[0][-1]["steps"] == 200
    for expected, row in zip(*curves, strict=True):
        assert row == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("launcher", ["basic", pytest.param("cores", marks=pytest.mark.slow)])
def test_a_failing_run_of_a_sweep_leaves_the_others_and_is_named_and_no_run_is_repeated(
    launcher, tmp_path, monkeypatch
):
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")  # as of a terminal that knows no other characters
    sweep = ("-m", "experiment=digits", "trainer.max_epochs=1", "activation=softmax,sharmix_fixed", "activation.q=1.75")
    start = run if launcher == "cores" else command_line
    first = start(tmp_path / "outputs", *sweep, f"hydra/launcher={launcher}")
    again = command_line(tmp_path / "outputs", *sweep, "hydra.run.dir=one")  # which a sweep's runs cannot share
    for status, printed in (first, again):
        assert status != 0
        assert "Traceback" not in printed
        assert printed.count("failed: ") == 1
        assert "activation=softmax activation.q=1.75" in printed
        assert "has no parameter q" in printed
    assert again[1].count("finished before") == 1
    assert only_record(tmp_path / "outputs")["config"]["activation"]["name"] == "sharmix_fixed"
