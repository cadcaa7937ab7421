"""The Trainer of a run: `conf/` shows all of Lightning's options, and what cannot be is refused by its key."""

import inspect
import itertools
from types import SimpleNamespace

import lightning.pytorch as L
import pytest
import torch
from omegaconf import OmegaConf

from experiments.composition import settings_of as settings
from experiments.errors import ConfigurationError
from experiments.run import Run
from experiments.trainer import ReseedEachEpoch, build_trainer
from tests.experiments.building import CONF


@pytest.fixture(scope="module")
def options():
    return settings("experiment=digits").trainer


def test_the_configuration_shows_every_option_of_lightning():
    shown = OmegaConf.load(CONF / "trainer" / "default.yaml")
    of_runs = {"logger", "callbacks", "plugins", "enable_progress_bar"}  # which a run builds from settings of its own
    assert set(shown) == set(inspect.signature(L.Trainer).parameters) - of_runs


WRONG = [  # option, value, words of the message
    ("epochs", 5, ["there is no setting trainer.epochs (given trainer.epochs=5)"]),
    ("max_epochs", "ten", ["trainer.max_epochs='ten' is not allowed; it should be a valid integer"]),
    ("precision", "17-mixed", ["trainer.precision='17-mixed' is not allowed", "'bf16-mixed'"]),
    ("precision", "16-mixed", ["trainer.precision=16-mixed: cpu does not", "give bf16-mixed"]),
    ("precision", "bf16-true", ["trainer.precision='bf16-true' is not allowed", "'bf16-mixed'"]),
    ("enable_progress_bar", True, ["there is no setting trainer.enable_progress_bar"]),
    ("limit_val_batches", 0, ["trainer.limit_val_batches=0 is not allowed", "greater than 0"]),
    ("limit_test_batches", 3, ["trainer.limit_test_batches=3 is not allowed", "trainer.limit_val_batches limits them"]),
    ("accumulate_grad_batches", 0, ["trainer.accumulate_grad_batches=0 is not allowed", "equal to 1"]),
    ("gradient_clip_val", -1, ["trainer.gradient_clip_val=-1 is not allowed", "equal to 0"]),
    ("val_check_interval", 1, ["trainer.val_check_interval=1 is not allowed", "None"]),
    ("enable_checkpointing", False, ["trainer.enable_checkpointing=False is not allowed", "True or None"]),
    ("accelerator", "abacus", ["trainer.accelerator=abacus", "Available names are: auto"]),
    ("accelerator", "gpu", ["trainer.accelerator=gpu", "trainer.devices=1"]),
    ("sync_batchnorm", True, ["trainer.sync_batchnorm=true is not allowed on cpu"]),
    ("devices", 0, ["trainer.accelerator=cpu, trainer.devices=0"]),
    ("strategy", "ddp_spawn", ["trainer.strategy=ddp_spawn is not allowed", "give ddp"]),
]


@pytest.mark.filterwarnings("ignore:.*not supported on CPU")
@pytest.mark.parametrize(("name", "value", "said"), WRONG, ids=lambda value: str(value)[:20])
def test_a_wrong_option_is_named(name, value, said, options, monkeypatch):
    for variable in ("WORLD_SIZE", "SLURM_NTASKS"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(ConfigurationError) as error:
        build_trainer(options | {name: value}, threads=1)
    for words in said:
        assert words in str(error.value)


def test_a_limit_that_would_end_an_epoch_within_a_step_is_refused(options):
    for passes, limit in ((1, 3), (1, 0.5), (2, 4), (2, None)):
        both = {"accumulate_grad_batches": passes, "limit_train_batches": limit}
        build_trainer(options | both, threads=1)
    for passes, limit in ((2, 3), (4, 2), (2, 0.5)):
        both = {"accumulate_grad_batches": passes, "limit_train_batches": limit}
        with pytest.raises(ConfigurationError, match=rf"limit_train_batches={limit} is not .* counts parts of batches"):
            build_trainer(options | both, threads=1)


@pytest.mark.parametrize("number", ["2", "x"])
def test_processes_that_were_not_asked_for_are_refused(number, options, monkeypatch):
    for name, value in {"WORLD_SIZE": number, "RANK": "1", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError, match=f"trainer.devices=1.* ask for 1 processes, but {number} were started"):
        build_trainer(options, threads=1)


@pytest.mark.parametrize("variable", ["RANK", "LOCAL_RANK", "SLURM_PROCID"])
def test_a_rank_without_other_processes_is_refused(variable, tmp_path, monkeypatch):
    monkeypatch.setenv(variable, "1")  # no process would write the record
    with pytest.raises(ConfigurationError, match=f"{variable}=1 says .*; unset it"):
        Run(settings("experiment=digits"), tmp_path / "run").complete()


def test_a_trainer_is_deterministic_and_has_the_asked_threads(options):
    build_trainer(options, threads=2)
    assert torch.are_deterministic_algorithms_enabled()
    assert torch.get_num_threads() == 2


def test_each_seed_epoch_and_process_has_random_numbers_of_its_own_that_come_back():
    def drawn(seed, epoch, process):
        ReseedEachEpoch(seed).on_train_epoch_start(SimpleNamespace(current_epoch=epoch, global_rank=process), None)
        return torch.rand(()).item()

    places = [*itertools.product((0, 1), repeat=3)]
    first = [drawn(*place) for place in places]
    assert len({*first}) == len(places)
    assert [drawn(*place) for place in places] == first
