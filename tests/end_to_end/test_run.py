"""The runner as a person uses it: composing, refusing, skipping, resuming, sweeping."""

import json
import os
import re
import signal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from experiments import load_run
from experiments.errors import UserError
from tests.end_to_end.runner import (
    QUICK,
    Started,
    command_line,
    only_record,
    records,
    run,
    torchrun,
    untimed,
)

pytestmark = pytest.mark.medium


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
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


def test_a_run_is_recorded_whole(finished: Path) -> None:
    record = only_record(finished)
    assert record["seed"] == 21
    assert record["config"]["activation"]["name"] == "sharmix_learned"
    assert record["config"]["trainer"]["max_epochs"] == 3
    assert [row["epoch"] for row in record["curves"]] == [1, 2, 3]
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


def test_the_csv_file_holds_every_epoch_once_and_nothing_but_the_results_is_left_behind(finished: Path) -> None:
    (file,) = records(finished)
    assert {path.name for path in file.parent.iterdir()} == {"record.json", "metrics.csv", "weights.ckpt"}
    rows = pd.read_csv(file.with_name("metrics.csv")).to_dict("records")
    assert rows == [pytest.approx(row) for row in only_record(finished)["curves"]]


def test_a_finished_run_is_skipped_and_force_repeats_it(finished: Path) -> None:
    (file,) = records(finished)
    before = file.read_text()
    status, printed = command_line(finished, *QUICK)
    assert status == 0
    assert "finished before" in printed
    assert file.read_text() == before
    status, printed = command_line(finished, *QUICK, "force=true")
    assert status == 0, printed
    repeated = only_record(finished)
    assert repeated["metrics"] == json.loads(before)["metrics"]
    assert repeated["weights_hash"] == json.loads(before)["weights_hash"]
    assert repeated["wall_time_seconds"] != json.loads(before)["wall_time_seconds"]


def test_the_weights_of_the_reported_epoch_stay_and_load(finished: Path, tmp_path: Path) -> None:
    (file,) = records(finished)
    module, data = load_run(file.parent)
    examples = data.data.test
    inputs, targets = examples.read(torch.arange(len(examples.targets)), torch.zeros(0))
    with torch.no_grad():
        accuracy = (module.probabilities(inputs).argmax(-1) == targets).double().mean().item()
    assert accuracy == pytest.approx(only_record(finished)["metrics"]["test"]["accuracy"], abs=1e-6)
    assert not any("optimizer" in key for key in torch.load(file.with_name("weights.ckpt"), weights_only=True))

    status, printed = command_line(tmp_path / "outputs", *QUICK, "keep_weights=false", "trainer.max_epochs=1")
    assert status == 0, printed
    (file,) = records(tmp_path / "outputs")
    assert not file.with_name("weights.ckpt").exists()
    with pytest.raises(UserError, match="keep_weights=true"):
        load_run(file.parent)


def test_tensorboard_gets_the_epochs_of_a_run_and_of_a_finished_run_and_changes_nothing(
    finished: Path, tmp_path: Path
) -> None:
    outputs, logged = tmp_path / "elsewhere", []
    for _ in range(2):
        status, printed = command_line(outputs, *QUICK, "logger=tensorboard")
        assert status == 0, printed
        (events,) = outputs.rglob("events.out.tfevents.*")
        logged.append(tensorboard_scalars(events.parent))
        events.unlink()
    assert "finished before" in printed
    record = only_record(outputs)
    assert record["run_id"] == only_record(finished)["run_id"]
    assert record["metrics"] == only_record(finished)["metrics"]
    for name in ("test/accuracy", "train/loss", "q", "training_seconds"):
        assert len(logged[0][name]) == 3
        assert logged[0][name] == logged[1][name]


def tensorboard_scalars(folder: Path) -> dict[str, list[float]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder)).Reload()
    return {name: [event.value for event in events.Scalars(name)] for name in events.Tags()["scalars"]}


@pytest.fixture
def without_wandb_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine where W&B was never used."""
    for name in [name for name in os.environ if name.startswith(("WANDB_", "NETRC"))]:
        monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "WANDB_CONFIG_DIR"):
        monkeypatch.setenv(name, str(home))


@pytest.mark.usefixtures("without_wandb_key")
def test_wandb_without_a_key_is_offline_with_one_run_a_job_whose_numbers_are_its_seeds_alone(
    finished: Path, tmp_path: Path
) -> None:
    status, printed = command_line(tmp_path / "outputs", "-m", *QUICK, "logger=wandb", "seed=42,21", "tags=[mine]")
    assert status == 0, printed
    found = {record["seed"]: record for record in (json.loads(file.read_text()) for file in records(tmp_path))}
    assert found[21]["weights_hash"] == only_record(finished)["weights_hash"]
    assert len({path.name for path in (tmp_path / "outputs").rglob("offline-run-*")}) == len(found) == 2
    assert "[1/2] digits sharmix_learned q=1.25 r=1.5 seed 42 ·" in printed
    assert "s left] epoch 3/3" in printed
    assert max(map(len, printed.splitlines())) <= 120
    assert "logging interval" not in printed


def test_one_batch_of_everything_is_tried_without_a_record(tmp_path: Path) -> None:
    status, printed = command_line(tmp_path / "outputs", *QUICK, "trainer.fast_dev_run=true")
    assert status == 0, printed
    assert not records(tmp_path / "outputs")


@pytest.mark.parametrize("steps", [10, 30])  # an epoch has 23
def test_a_training_that_ends_in_the_middle_of_an_epoch_is_not_recorded(steps: int, tmp_path: Path) -> None:
    status, printed = command_line(tmp_path / "outputs", *QUICK, f"trainer.max_steps={steps}")
    assert status != 0
    assert "ended in the middle of an epoch" in printed
    assert not records(tmp_path / "outputs")


def test_options_of_the_trainer_work_from_the_command_line(tmp_path: Path) -> None:
    options = ("trainer.limit_train_batches=6", "trainer.profiler=simple", "trainer.accumulate_grad_batches=2")
    options += ("trainer.strategy=auto", "callbacks=early_stopping", "data.validation_fraction=0.1")
    status, printed = command_line(tmp_path / "outputs", *QUICK, *options)
    assert status == 0, printed
    record = only_record(tmp_path / "outputs")
    assert record["curves"][0]["steps"] == 3
    assert set(record["metrics"]) == {"train", "validation", "test"}


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder shaped like ImageNet, with one small image a class."""
    folder = tmp_path_factory.mktemp("photographs")
    pixels = np.random.default_rng(0).integers(0, 256, (1000, 40, 40, 3), dtype=np.uint8)
    for number, image in enumerate(pixels):
        own = folder / "imagenet" / "train" / f"n{number:08d}"
        own.mkdir(parents=True)
        Image.fromarray(image).save(own / "only.JPEG")
    return folder


PHOTOGRAPHS = (
    *("trainer.max_epochs=2", "data.batch_size=8", "trainer.limit_train_batches=12", "trainer.accelerator=cpu"),
    *("data.test_folder=train", "data.image_size=32", "data.shorter_side=32", "data.expected_examples=null"),
)
IMAGES = (
    *("model=timm", "model.architecture=test_resnet", "data.sampler=class_balanced", "trainer.precision=32-true"),
    *PHOTOGRAPHS,
)
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
        ("SharMiX", ("experiment=imagenet_balanced", *IMAGES), 12 + 5),
        ("AlphaReLU", ("experiment=copy", *COPIES), 16 * (12 + 5)),  # an output layer has 16 blocks
    ],
    ids=["digits", "augmented_photographs", "translation"],
)
def test_killed_in_mid_epoch_a_run_resumes_to_the_same_bits(
    activation: str,
    overrides: tuple[str, ...],
    dies_at: int,
    tmp_path: Path,
    photographs: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "mortal.py").write_text(MORTAL)
    monkeypatch.syspath_prepend(tmp_path)
    overrides += ("activation=custom", f"activation.name=mortal.Mortal{activation}")
    overrides += (f"paths.data={photographs}", "checkpoint_seconds=0")
    status, printed = command_line(tmp_path / "whole", *overrides, "data.num_workers=0")
    assert status == 0, printed
    whole = only_record(tmp_path / "whole")

    overrides = (*overrides, "data.num_workers=2")  # who reads must not matter
    status, printed = Started(tmp_path / "killed", *overrides, DIES_AT=str(dies_at)).end()
    assert status == -signal.SIGKILL, printed
    assert not records(tmp_path / "killed")
    (checkpoint,) = (tmp_path / "killed").rglob("last*.ckpt")
    assert torch.load(checkpoint, weights_only=True)["epoch"] == 0

    status, printed = command_line(tmp_path / "killed", *overrides)
    assert status == 0, printed
    assert "goes on from epoch 2" in printed
    resumed = only_record(tmp_path / "killed")
    assert resumed["weights_hash"] == whole["weights_hash"]
    assert resumed["metrics"] == whole["metrics"]
    assert untimed(resumed["curves"]) == untimed(whole["curves"])
    (csv,) = (tmp_path / "killed").rglob("metrics.csv")
    assert pd.read_csv(csv).to_dict("records") == [pytest.approx(row) for row in resumed["curves"]]
    kept = [
        torch.load(*(tmp_path / name).rglob("*.ckpt"), weights_only=True)["state_dict"] for name in ("whole", "killed")
    ]
    assert kept[0].keys() == kept[1].keys()
    assert all(torch.equal(kept[0][key], kept[1][key]) for key in kept[0])


def test_a_resnet_50_trains_on_the_long_tail_in_bfloat16(tmp_path: Path, photographs: Path) -> None:
    counts = [1280, *[5] * 400, *[190] * 590, *[46] * 8]
    counts.append(115_846 - sum(counts))
    (photographs / "imagenet_lt").mkdir()
    (photographs / "imagenet_lt" / "ImageNet_LT_train.json").write_text(json.dumps(counts))
    status, printed = command_line(
        tmp_path / "outputs",
        *("experiment=imagenet_lt", "activation=sharmix_learned", f"paths.data={photographs}", "data.num_workers=1"),
        *("data.repeat_images=true", *PHOTOGRAPHS, "trainer.max_epochs=1", "trainer.limit_train_batches=2"),
    )
    assert status == 0, printed
    record = only_record(tmp_path / "outputs")
    assert record["config"]["trainer"]["precision"] == "bf16-mixed"
    assert record["config"]["data"]["sampler"] == "class_balanced"
    assert record["config"]["model"]["depth"] == 50
    assert record["data"]["train_size"] == 115_846
    assert record["data"]["unreadable"] == 0
    assert 0 < record["metrics"]["test"]["loss"] < 100


@pytest.mark.parametrize(
    "change", [pytest.param("module.compile=true", marks=pytest.mark.slow), "trainer.precision=bf16-mixed"]
)
def test_a_network_compiled_or_in_half_precision_ends_nearly_the_same(
    change: str, finished: Path, tmp_path: Path
) -> None:
    status, printed = command_line(tmp_path / "outputs", *QUICK, change)
    assert status == 0, printed
    metrics, plain = only_record(tmp_path / "outputs")["metrics"]["test"], only_record(finished)["metrics"]["test"]
    assert metrics["loss"] == pytest.approx(plain["loss"], rel=0.02)
    assert metrics["accuracy"] == pytest.approx(plain["accuracy"], abs=0.02)


def test_two_processes_and_two_passes_train_as_one(tmp_path: Path) -> None:
    common = ("experiment=digits_lt", *QUICK[1:], "data.sampler=square_root")
    status, printed = command_line(tmp_path / "one", *common)
    assert status == 0, printed
    one = only_record(tmp_path / "one")
    two = (*common, "trainer.devices=2")
    status, printed = run(tmp_path / "two_of_each", *two, "trainer.accumulate_grad_batches=2")
    assert (status, printed.count("record.json")) == (0, 1), printed
    ranks = [Started(tmp_path / "torchrun", *two, **variables) for variables in torchrun(processes=2)]
    (status, printed), (second, silent) = (rank.end() for rank in ranks)
    assert (status, second, printed.count("record.json")) == (0, 0, 1), printed + silent
    assert not [line for line in silent.splitlines() if "digits_lt" in line or line.startswith("epoch")]
    for name in ("two_of_each", "torchrun"):
        record = only_record(tmp_path / name)
        for row, expected in zip(untimed(record["curves"]), untimed(one["curves"]), strict=True):
            assert row == pytest.approx(expected, rel=1e-3, abs=3e-3)  # of 359 images one may fall to the other side


def test_a_threshold_is_not_calibrated_by_several_processes(tmp_path: Path) -> None:
    alone = ("experiment=digits", "activation=alpha_relu", "trainer.devices=2")
    status, printed = command_line(tmp_path / "outputs", *alone)
    assert status != 0
    assert "activation.tau" in printed
    assert "Traceback" not in printed
