"""The Trainer of a run: `conf/` shows all of Lightning's options, and what cannot be is refused by its key."""

import inspect
import os
import re
from pathlib import Path

import lightning.pytorch as L
import pytest
import torch
from omegaconf import OmegaConf

from experiments.errors import ConfigurationError
from experiments.settings import Group
from experiments.trainer import build_trainer, check_options
from experiments.training import train
from tests.experiments.building import ADVICE, CONF, settings
from tests.sharmix.cases import every_case

pytestmark = [pytest.mark.filterwarnings(advice) for advice in ADVICE]
OURS = {"logger", "callbacks", "plugins", "enable_progress_bar"}  # which a run builds from settings of its own


@pytest.fixture(scope="module")
def options() -> Group:
    return settings("experiment=digits").trainer


def test_the_configuration_shows_every_option_of_lightning() -> None:
    shown = OmegaConf.load(CONF / "trainer" / "default.yaml")
    assert set(shown) == set(inspect.signature(L.Trainer).parameters) - OURS


def test_only_these_options_differ_from_lightnings_defaults() -> None:
    parameters = inspect.signature(L.Trainer).parameters
    shown = OmegaConf.to_container(OmegaConf.load(CONF / "trainer" / "default.yaml"))
    assert {name: value for name, value in shown.items() if value != parameters[name].default} == {
        "max_epochs": "???",
        "accelerator": "cpu",
        "devices": 1,
        "precision": "32-true",
        "gradient_clip_val": 1.0,
        "gradient_clip_algorithm": "norm",
        "num_sanity_val_steps": 0,
        "log_every_n_steps": 1_000_000,
        "enable_model_summary": False,
        "deterministic": True,
        "use_distributed_sampler": False,
    }


def test_an_option_that_cannot_be_is_named(options: Group) -> None:
    for name, value, said in (
        ("epochs", 5, ["there is no setting trainer.epochs (given 5)", "Allowed: ", "max_epochs"]),
        ("max_epoch", 5, ["there is no setting trainer.max_epoch (given 5)", "Did you mean max_epochs?"]),
        ("callbacks", [], ["there is no setting trainer.callbacks"]),
        ("plugins", [], ["there is no setting trainer.plugins"]),
        ("max_epochs", "ten", ["trainer.max_epochs='ten' is not allowed; it should be a valid integer"]),
        ("gradient_clip_val", "much", ["trainer.gradient_clip_val='much' is not allowed", "integer", "number"]),
        ("accumulate_grad_batches", 1.5, ["trainer.accumulate_grad_batches=1.5 is not allowed", "integer"]),
        ("precision", "17-mixed", ["trainer.precision='17-mixed' is not allowed", "'bf16-mixed'"]),
        ("devices", [0, "x"], ["trainer.devices.1='x' is not allowed"]),
        ("inference_mode", "perhaps", ["trainer.inference_mode='perhaps' is not allowed", "boolean"]),
        ("max_epochs", "3", ["trainer.max_epochs='3' is not allowed", "integer"]),
        ("max_epochs", 3.0, ["trainer.max_epochs=3.0 is not allowed", "integer"]),
        ("accumulate_grad_batches", 0, ["trainer.accumulate_grad_batches=0 is not allowed", "at least 1"]),
        ("gradient_clip_val", -1, ["trainer.gradient_clip_val=-1 is not allowed", "null clips none"]),
        ("gradient_clip_val", float("inf"), ["trainer.gradient_clip_val=inf is not allowed", "finite"]),
        ("devices", "2", ["trainer.devices='2' is not allowed", "without quotes"]),
        ("limit_train_batches", 1.0, ["trainer.limit_train_batches=1.0 is not allowed", "null is all batches"]),
        ("val_check_interval", 1, ["trainer.val_check_interval=1 is not allowed", "every epoch is measured once"]),
        ("enable_checkpointing", False, ["trainer.enable_checkpointing=false is not allowed", "keep_weights=false"]),
    ):
        with pytest.raises(ConfigurationError) as error:
            check_options(options | {name: value})
        for words in said:
            assert words in str(error.value), f"{name}={value}"


def test_a_limit_that_would_end_an_epoch_within_a_step_is_refused(options: Group) -> None:
    for passes, limit in ((1, 3), (1, 0.5), (2, 4), (2, None)):
        check_options(options | {"accumulate_grad_batches": passes, "limit_train_batches": limit})
    for passes, limit in ((2, 3), (4, 2), (2, 0.5)):
        with pytest.raises(
            ConfigurationError, match=rf"limit_train_batches={limit} is not .* counts the parts of batches"
        ):
            check_options(options | {"accumulate_grad_batches": passes, "limit_train_batches": limit})


def test_what_lightning_refuses_is_named(options: Group) -> None:
    for changes, said in (
        ({"accelerator": "abacus"}, ["trainer.accelerator=abacus", "Available names are: auto"]),
        ({"accelerator": "gpu"}, ["trainer.accelerator=gpu", "trainer.devices=1"]),
        ({"devices": 0}, ["trainer.accelerator=cpu, trainer.devices=0"]),
        ({"max_time": "long"}, ["'long'", "DD:HH:MM:SS"]),
        ({"profiler": "guess"}, ["simple", "advanced"]),
        ({"strategy": "telepathy"}, ["strategy='telepathy'"]),
    ):
        with pytest.raises(ConfigurationError) as error:
            build_trainer(options | changes, threads=1, logger=False)
        for words in said:
            assert words in str(error.value), changes


CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
MACHINE = {  # options, threads, and words of the message
    "several machines": ({"num_nodes": 2}, 1, "trainer.num_nodes=2 is not allowed here: start the run on each machine"),
    "more machines": ({"num_nodes": 10**12}, 1, "start the run on each machine"),
    "no machine": ({"num_nodes": 0}, 1, "trainer.num_nodes=0"),
    "devices": ({"devices": 99999}, 1, f"=99999 is not allowed, for this machine has {CORES} cores and "),
    "more devices": ({"devices": 10**30}, 1, "is not allowed, for this machine has"),
    "devices of a GPU": ({"accelerator": "gpu", "devices": 99999}, 1, "is not allowed, for this machine has"),
    "all devices": ({"devices": -1}, 1, "trainer.devices=-1"),
    "a list": ({"devices": [0, 1]}, 1, "trainer.devices=[0, 1]"),
    "a text": ({"devices": "0,1"}, 1, "trainer.devices=0,1"),
    "no list": ({"devices": []}, 1, "trainer.devices=[]"),
    "nothing": ({"devices": None}, 1, "trainer.devices=None is not allowed"),
    "TPU": ({"accelerator": "tpu"}, 1, "trainer.accelerator=tpu"),
    "package": ({"strategy": "deepspeed"}, 1, "eep"),
    "threads": ({}, 100_000, f"threads=100000 is not allowed, for this process may use {CORES} cores"),
}


def test_what_this_machine_does_not_have_is_refused_before_anything_starts(
    options: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("WORLD_SIZE", "SLURM_NTASKS"):
        monkeypatch.delenv(name, raising=False)
    with every_case() as case:
        for name, (changes, threads, words) in MACHINE.items():
            with case(name=name), pytest.raises(ConfigurationError, match=re.escape(words)):
                build_trainer(options | changes, threads=threads, logger=False)
    assert build_trainer(options | {"devices": "auto"}, threads=1, logger=False).num_devices == 1


def test_the_machine_is_looked_at_before_any_data_are_read(tmp_path: Path) -> None:
    asked = settings("experiment=airline", "paths.data=nowhere", "trainer.devices=99999")
    with pytest.raises(ConfigurationError, match=r"trainer\.devices=99999"):
        train(asked, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_option_that_is_missing_is_named(options: Group) -> None:
    for name in ("max_epochs", "deterministic", "accelerator"):
        with pytest.raises(ConfigurationError, match=f"trainer.{name} is missing; give trainer.{name}=VALUE"):
            check_options({key: value for key, value in options.items() if key != name})


@pytest.mark.filterwarnings("ignore:.*not supported on CPU")
def test_a_precision_that_the_device_does_not_have_is_refused(options: Group) -> None:
    with pytest.raises(ConfigurationError, match=r"trainer.precision=16-mixed .* cpu; give bf16-mixed"):
        build_trainer(options | {"precision": "16-mixed"}, threads=1, logger=False)


@pytest.mark.parametrize(
    "launcher",
    [
        {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1"},
        {"SLURM_NTASKS": "2", "SLURM_JOB_NAME": "train", "SLURM_PROCID": "1", "SLURM_LOCALID": "1"},
    ],
    ids=["torchrun", "slurm"],
)
def test_processes_that_were_not_asked_for_are_refused(
    launcher: dict[str, str], options: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in launcher.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError, match=r"trainer.devices=1.* ask for 1 processes, but 2 were started"):
        build_trainer(options, threads=1, logger=False)


def test_a_trainer_gives_the_same_bits_again(options: Group) -> None:
    trainer = build_trainer(options, threads=1, logger=False)
    assert torch.are_deterministic_algorithms_enabled()
    assert torch.get_num_threads() == 1
    assert (trainer.max_epochs, trainer.gradient_clip_val, trainer.accumulate_grad_batches) == (20, 1.0, 1)
