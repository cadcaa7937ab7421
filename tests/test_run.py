"""The runner as a person uses it: composing, refusing, skipping, resuming, sweeping."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from experiments.callbacks.curves import TIMING

ROOT = Path(__file__).resolve().parent.parent
QUICK = ("experiment=digits", "activation=sharmix_learned", "trainer.epochs=3", "model.hidden_units=16")


def start(outputs: Path, *overrides: str, **variables: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(ROOT / "run.py"), *overrides, f"paths.outputs={outputs}"]
    environment = os.environ | {"NO_COLOR": "1", "WANDB_MODE": "offline", "WANDB_SILENT": "true"} | variables
    environment.pop("WANDB_API_KEY", None)
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, cwd=outputs.parent
    )


def run(outputs: Path, *overrides: str, **variables: str) -> tuple[int, str]:
    process = start(outputs, *overrides, **variables)
    printed, _ = process.communicate(timeout=170)
    return process.returncode, printed


def records(outputs: Path) -> list[Path]:
    return sorted(outputs.rglob("record.json"))


def only_record(outputs: Path) -> dict:
    (file,) = records(outputs)
    return json.loads(file.read_text())


def untimed(curves: list[dict]) -> list[dict]:
    """The rows without what a repeated run does not repeat."""
    return [{name: value for name, value in row.items() if name not in TIMING} for row in curves]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One finished run, for the tests that only look at it."""
    outputs = tmp_path_factory.mktemp("finished") / "outputs"
    status, printed = run(outputs, *QUICK)
    assert status == 0, printed
    return outputs


def test_a_run_is_recorded_whole(finished: Path) -> None:
    record = only_record(finished)
    assert record["seed"] == 21
    assert record["config"]["activation"]["name"] == "sharmix_learned"
    assert record["config"]["trainer"]["epochs"] == 3
    assert [row["epoch"] for row in record["curves"]] == [1, 2, 3]
    assert all(1.25 < row["q"] < 2 and 1.5 < row["r"] < 2 for row in record["curves"])
    for split in ("train", "test"):
        metrics = record["metrics"][split]
        assert 0.3 < metrics["accuracy"] <= 1
        assert metrics["coverage"] + metrics["zero_true"] == pytest.approx(1)
        assert metrics["support"] == pytest.approx(10 * (1 - metrics["sparsity"]), rel=1e-5)
        assert metrics["accuracy"] == record["curves"][-1][f"{split}/accuracy"]
    assert len(record["data"]["split_hash"]) == 64
    assert record["environment"]["packages"]["torch"]
    assert record["environment"]["hardware"]["cores"] >= 1
    assert len(record["code"]["digest"]) == 64
    assert len(record["weights_hash"]) == 64
    assert record["wall_time_seconds"] > 0
    assert 50 < record["peak_memory_mib"] < 100_000


def test_the_csv_file_holds_every_epoch_once(finished: Path) -> None:
    record = only_record(finished)
    (file,) = finished.rglob("metrics.csv")
    assert pd.read_csv(file).to_dict("records") == [pytest.approx(row) for row in record["curves"]]


def test_nothing_but_the_results_is_left_behind(finished: Path) -> None:
    (record,) = records(finished)
    assert {path.name for path in record.parent.iterdir()} == {"record.json", "metrics.csv"}


def test_a_finished_run_is_skipped_and_force_repeats_it(finished: Path) -> None:
    (file,) = records(finished)
    before = file.read_text()
    status, printed = run(finished, *QUICK)
    assert status == 0
    assert "finished before" in printed
    assert file.read_text() == before
    status, printed = run(finished, *QUICK, "force=true")
    assert status == 0, printed
    repeated = only_record(finished)
    assert repeated["metrics"] == json.loads(before)["metrics"]
    assert repeated["wall_time_seconds"] != json.loads(before)["wall_time_seconds"]


def test_the_logger_and_the_folder_do_not_change_what_is_computed(finished: Path, tmp_path: Path) -> None:
    status, printed = run(tmp_path / "elsewhere", *QUICK, "logger=tensorboard")
    assert status == 0, printed
    record = only_record(tmp_path / "elsewhere")
    assert record["run_id"] == only_record(finished)["run_id"]
    assert record["metrics"] == only_record(finished)["metrics"]
    assert list((tmp_path / "elsewhere").rglob("events.out.tfevents.*"))


def test_wandb_without_a_key_is_offline_with_one_run_a_job(tmp_path: Path) -> None:
    status, printed = run(tmp_path / "outputs", "-m", *QUICK, "logger=wandb", "seed=21,42")
    assert status == 0, printed
    assert len(records(tmp_path / "outputs")) == 2
    runs = list((tmp_path / "outputs").rglob("offline-run-*"))
    assert len({path.name for path in runs}) == 2


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


IMAGES = (
    *("model=timm", "model.architecture=test_resnet"),
    *("trainer.epochs=2", "trainer.batch_size=8", "trainer.steps_per_epoch=12", "trainer.accelerator=cpu"),
    *("data.test_folder=train", "data.image_size=32", "data.shorter_side=32"),
)
COPIES = (
    *("trainer.epochs=2", "trainer.steps_per_epoch=12", "data.train_size=2000", "data.evaluation_size=20"),
    *("model.dropout=0.1", "optimizer.average_decay=0.01"),
)
MORTAL = """
import os, random, signal
import numpy, torch
from sharmix.activations import AlphaReLU, LearnedSharMiX

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

class MortalSharMiX(Mortal, LearnedSharMiX):
    pass

class MortalAlphaReLU(Mortal, AlphaReLU):
    pass
"""


@pytest.mark.parametrize(
    ("activation", "overrides", "dies_at"),  # the number of a loss in the second epoch, of 23 and of 12 steps
    [
        ("SharMiX", ("experiment=digits", "trainer.epochs=3"), 33),
        (
            "SharMiX",
            ("experiment=imagenet_balanced", "trainer.sampler=class_balanced", "trainer.precision=32-true", *IMAGES),
            12 + 5,
        ),
        ("AlphaReLU", ("experiment=copy", "attention=sharmix", *COPIES), 12 + 5),
    ],
    ids=["digits", "augmented_photographs", "translation"],
)
def test_killed_in_mid_epoch_a_run_resumes_to_the_same_bits(
    activation: str, overrides: tuple[str, ...], dies_at: int, tmp_path: Path, photographs: Path
) -> None:
    (tmp_path / "my_package.py").write_text(MORTAL)
    overrides = (
        *overrides,
        "activation=custom",
        f"activation.name=my_package.Mortal{activation}",
        f"paths.data={photographs}",
    )
    path = {"PYTHONPATH": str(tmp_path)}
    status, printed = run(tmp_path / "whole", *overrides, "workers=0", **path)
    assert status == 0, printed
    whole = only_record(tmp_path / "whole")

    overrides = (*overrides, "workers=2")  # who reads must not matter
    status, printed = run(tmp_path / "killed", *overrides, **path, DIES_AT=str(dies_at))
    assert status == -signal.SIGKILL, printed
    assert not records(tmp_path / "killed")
    (checkpoint,) = (tmp_path / "killed").rglob("last*.ckpt")
    assert len(torch.load(checkpoint, weights_only=True)["curves"]["rows"]) == 1

    status, printed = run(tmp_path / "killed", *overrides, **path)
    assert status == 0, printed
    resumed = only_record(tmp_path / "killed")
    assert resumed["weights_hash"] == whole["weights_hash"]
    assert resumed["metrics"] == whole["metrics"]
    assert untimed(resumed["curves"]) == untimed(whole["curves"])
    (csv,) = (tmp_path / "killed").rglob("metrics.csv")
    assert pd.read_csv(csv).to_dict("records") == [pytest.approx(row) for row in resumed["curves"]]


def test_a_resnet_50_trains_on_the_long_tail_in_bfloat16(tmp_path: Path, photographs: Path) -> None:
    counts = [1280, *[5] * 400, *[190] * 590, *[46] * 8]
    counts.append(115_846 - sum(counts))
    (photographs / "imagenet_lt").mkdir()
    (photographs / "imagenet_lt" / "ImageNet_LT_train.json").write_text(json.dumps(counts))
    status, printed = run(
        tmp_path / "outputs",
        *("experiment=imagenet_lt", "activation=sharmix_learned", f"paths.data={photographs}", "workers=1"),
        *("data.repeat_images=true", *IMAGES[2:], "trainer.epochs=1", "trainer.steps_per_epoch=2"),
    )
    assert status == 0, printed
    record = only_record(tmp_path / "outputs")
    assert record["config"]["trainer"]["precision"] == "bf16-mixed"
    assert record["config"]["trainer"]["sampler"] == "class_balanced"
    assert record["config"]["model"]["name"] == "resnet50"
    assert record["data"]["train_size"] == 115_846
    assert record["data"]["unreadable"] == 0
    assert 0 < record["metrics"]["test"]["loss"] < 100


@pytest.mark.parametrize("change", ["trainer.compile=true", "trainer.precision=bf16-mixed"])
def test_a_network_compiled_or_in_half_precision_ends_nearly_the_same(
    change: str, finished: Path, tmp_path: Path
) -> None:
    status, printed = run(tmp_path / "outputs", *QUICK, change)
    assert status == 0, printed
    metrics, plain = only_record(tmp_path / "outputs")["metrics"]["test"], only_record(finished)["metrics"]["test"]
    assert metrics["loss"] == pytest.approx(plain["loss"], rel=0.02)
    assert metrics["accuracy"] == pytest.approx(plain["accuracy"], abs=0.02)


@pytest.mark.parametrize(
    "launcher",
    [
        {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1"},
        {"SLURM_NTASKS": "2", "SLURM_JOB_NAME": "train", "SLURM_PROCID": "1", "SLURM_LOCALID": "1"},
    ],
    ids=["torchrun", "slurm"],
)
def test_processes_that_were_not_asked_for_are_refused(launcher: dict[str, str], tmp_path: Path) -> None:
    status, printed = run(tmp_path / "outputs", "experiment=digits", **launcher)
    assert status != 0
    assert "2 were started" in printed
    assert "Traceback" not in printed


def test_a_threshold_is_not_calibrated_by_several_processes(tmp_path: Path) -> None:
    status, printed = run(tmp_path / "outputs", "experiment=digits", "activation=alpha_relu", "trainer.devices=2")
    assert status != 0
    assert "activation.tau" in printed
    assert "Traceback" not in printed


def test_a_sweep_runs_jobs_side_by_side_and_again_reruns_nothing(tmp_path: Path) -> None:
    sweep = ("-m", *QUICK, "trainer.epochs=1", "seed=21,42", "activation.q=1.25,1.5", "hydra/launcher=joblib")
    status, printed = run(tmp_path / "outputs", *sweep)
    assert status == 0, printed
    found = [json.loads(file.read_text()) for file in records(tmp_path / "outputs")]
    assert {(record["seed"], record["config"]["activation"]["q"]) for record in found} == {
        (seed, q) for seed in (21, 42) for q in (1.25, 1.5)
    }
    status, printed = run(tmp_path / "outputs", *sweep)
    assert status == 0, printed
    assert printed.count("finished before") == 4


def test_two_processes_and_two_passes_train_as_one(tmp_path: Path) -> None:
    records_of = {}
    for name, division in {
        "one": (),
        "two_processes": ("trainer.devices=2",),
        "two_of_each": ("trainer.devices=2", "trainer.passes_per_step=2"),
    }.items():
        status, printed = run(
            tmp_path / name, "experiment=digits_lt", *QUICK[1:], "trainer.sampler=square_root", *division
        )
        assert status == 0, printed
        assert printed.count("finished") == 1
        records_of[name] = only_record(tmp_path / name)
    one = records_of.pop("one")
    for record in records_of.values():
        for row, expected in zip(untimed(record["curves"]), untimed(one["curves"]), strict=True):
            assert row == pytest.approx(expected, rel=1e-3, abs=3e-3)  # of 359 images one may fall to the other side


def test_a_batch_that_cannot_be_divided_is_refused(tmp_path: Path) -> None:
    status, printed = run(tmp_path / "outputs", "experiment=digits", "trainer.devices=2", "trainer.batch_size=63")
    assert status != 0
    assert "trainer.batch_size=63" in printed
    assert "divisible" in printed
    assert "Traceback" not in printed


def test_several_processes_in_a_sweep_are_refused_with_the_reason(tmp_path: Path) -> None:
    status, printed = run(tmp_path / "outputs", "-m", "experiment=digits", "trainer.devices=2", "seed=21,42")
    assert status != 0
    assert "repeats the sweep" in printed
    assert "Traceback" not in printed
    assert not records(tmp_path / "outputs")


def test_a_training_that_diverges_is_not_recorded(tmp_path: Path) -> None:
    status, printed = run(tmp_path / "outputs", "experiment=digits", "trainer.epochs=3", "optimizer.learning_rate=1e38")
    assert status != 0
    assert "diverged" in printed
    assert "Traceback" not in printed
    assert not records(tmp_path / "outputs")


def test_a_bad_job_of_a_sweep_does_not_stop_the_others(tmp_path: Path) -> None:
    sweep = ("-m", "experiment=digits", "trainer.epochs=1", "activation=softmax,sharmix_fixed", "activation.q=1.5")
    status, printed = run(tmp_path / "outputs", *sweep)
    assert status != 0
    assert "no parameter q" in printed
    assert "Traceback" not in printed
    assert only_record(tmp_path / "outputs")["config"]["activation"]["name"] == "sharmix_fixed"


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("trainer.epochz=5", ["trainer.epochz", "trainer.epochs", "trainer.batch_size"]),
        ("trainer.epochs=ten", ["trainer.epochs", "ten", "Integer"]),
        ("trainer.epochs=0", ["trainer.epochs=0", ">= 1"]),
        ("optimizer.learning_rate=-1", ["optimizer.learning_rate=-1", "> 0"]),
        ("data.test_fraction=1", ["data.test_fraction=1", "> 0 and < 1"]),
        ("trainer.accelerator=abacus", ["trainer.accelerator", "abacus", "cpu, auto"]),
        ("activation.alpha=1.5", ["sharmix_learned", "no parameter alpha", "q, r"]),
        ("activation=sharmax", ["sharmax", "sharmix_fixed"]),
        ("optimizer.learning_rate=inf", ["optimizer.learning_rate=inf", "finite"]),
        ("model=embedding_bag", ["embedding_bag", "digits", "airline"]),
        ("+trainer.epochz=3", ["trainer.epochz", "trainer.epochs"]),
    ],
)
def test_a_wrong_setting_is_refused_by_name(tmp_path: Path, override: str, said: list[str]) -> None:
    status, printed = run(tmp_path / "outputs", *QUICK[:2], override)
    assert status != 0
    for words in said:
        assert words in printed
    assert "Traceback" not in printed
    assert not list((tmp_path / "outputs").rglob("*.*"))


def test_help_lists_the_choices(tmp_path: Path) -> None:
    status, printed = run(tmp_path / "outputs", "--help")
    assert status == 0
    for word in ("airline", "digits", "sharmix_learned", "wandb", "experiment="):
        assert word in printed


def test_an_unknown_experiment_is_refused_with_those_there_are(tmp_path: Path) -> None:
    status, printed = run(tmp_path / "outputs", "experiment=airlines")
    assert status != 0
    assert "airlines" in printed
    assert "digits" in printed


def test_an_activation_of_ones_own_runs_by_its_class_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_package.py").write_text(
        "import torch, sharmix\n"
        "class Tempered(sharmix.Activation):\n"
        "    def __init__(self, temperature=1.0, offset=0.0):\n"
        "        super().__init__()\n"
        "        self.temperature = temperature\n"
        "        self.drawn = torch.nn.Parameter(torch.rand(()))\n"
        "    def map(self, logits):\n"
        "        return (logits / self.temperature).softmax(-1)\n"
        "    def entropy(self, p):\n"
        "        return self.temperature * sharmix.sharma_mittal_entropy(p, 1.0, 1.0)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    own = ("activation=custom", "activation.name=my_package.Tempered", "+activation.parameters.temperature=2.0")
    quick = ("experiment=digits", "trainer.epochs=2", *own)
    status, printed = run(tmp_path / "outputs", *quick)
    assert status == 0, printed
    record = only_record(tmp_path / "outputs")
    assert record["metrics"]["test"]["accuracy"] > 0.5
    status, printed = run(tmp_path / "sweep", "-m", *quick, "seed=42,21")  # a job's numbers are its seed's alone
    assert status == 0, printed
    again = [json.loads(file.read_text()) for file in records(tmp_path / "sweep")]
    assert [each["weights_hash"] for each in again if each["seed"] == 21] == [record["weights_hash"]]
