"""The Lightning Trainer of a run: checks its options and devices, repeats its random numbers, and handles SIGTERM."""

import inspect
import logging
import os
import signal
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, Literal

import lightning.pytorch as L
import torch
from lightning.fabric.plugins.environments import SLURMEnvironment
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.profilers import PassThroughProfiler
from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from experiments.callbacks.checkpoints import AtomicCheckpointIO
from experiments.data.randomness import sample_seeds
from experiments.errors import ConfigurationError
from experiments.machine import keep_freed_memory
from experiments.settings import AtLeastOne, Group, NotNegativeNumber, Positive, refusal

logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)  # its notes on devices do not concern the run
logging.getLogger("lightning.pytorch.profilers").setLevel(logging.INFO)  # so that a profiler prints what it measured

# Lightning's warnings that do not apply here: examples lie in memory, metrics are summed over processes already, the
# folder of a run holds its own files, a machine of a cluster may also run other commands, and nothing is logged
# within an epoch.
_HIDDEN_WARNINGS = (
    *(".*does not have many workers", ".*exists and is not empty", ".*recommended to use `self.log", ".*treespec"),
    *(".*`srun` command is available", ".*smaller than the logging interval"),
)
# Lightning allows more, but every epoch is measured once, and a run goes on from its checkpoint. In bf16-true and
# 16-true the metrics would count in 16 bits, too, and steps of learned orders would round to 0.
_NARROWER: Group = {
    "precision": Literal["32-true", "64-true", "bf16-mixed", "16-mixed"],
    "check_val_every_n_epoch": Literal[1],
    "val_check_interval": None,
    "overfit_batches": Literal[0],
    "barebones": Literal[False],
    "enable_checkpointing": Literal[True, None],
    "limit_train_batches": Positive | None,
    "limit_val_batches": Positive | None,
    "limit_test_batches": None,
    "limit_predict_batches": None,
    "gradient_clip_val": NotNegativeNumber | None,
    "accumulate_grad_batches": AtLeastOne,
}
# What Lightning would choose itself if a setting were removed.
_NEEDED = ("max_epochs", "accelerator", "devices", "num_nodes", "precision")


def build_trainer(options: Group, threads: int, callbacks: Sequence[Callback] = ()) -> L.Trainer:
    """The Trainer that Lightning's own options describe. It also sets torch so that a repeated run gives the same bits.

    `threads` is the number of this process's threads on the processor. The Trainer has no loggers yet.

    Raises:
        ConfigurationError: an option does not exist or has a wrong value; there are no such devices, they do not have
            the precision, or torchrun or SLURM has started another number of processes.
    """
    if limit := options.get("limit_test_batches"):
        raise ConfigurationError(
            f"trainer.limit_test_batches={limit} is not allowed: every split is measured after each epoch, and "
            "trainer.limit_val_batches limits them all"
        )
    try:
        _options_model().model_validate(options)
    except ValidationError as error:
        raise refusal(error, "trainer") from error
    passes, limit = options.get("accumulate_grad_batches", 1), options.get("limit_train_batches")
    if passes > 1 and (limit or 0) % passes:
        raise ConfigurationError(
            f"trainer.limit_train_batches={limit} is not allowed; it counts parts of batches; give null or a multiple "
            f"of {passes}"
        )
    _check_processes(options)
    for advice in _HIDDEN_WARNINGS:
        warnings.filterwarnings("ignore", message=advice)
    # Otherwise, at SLURM's warning of the end, Lightning writes its own checkpoint to the current folder, and the next
    # run that starts there would continue from it. SLURM or submitit queues the run again without Lightning.
    slurm = [SLURMEnvironment(auto_requeue=False)] if SLURMEnvironment.detect() else []
    profiler: Group = {} if options.get("profiler") else {"profiler": _NoProfiler()}
    quiet = {"enable_progress_bar": False} | profiler
    asked = ", ".join(f"trainer.{name}={options[name]}" for name in _NEEDED)
    try:
        plugins = [AtomicCheckpointIO(), *slurm]
        trainer = L.Trainer(**options | quiet, callbacks=[*callbacks], logger=False, plugins=plugins)
    except Exception as error:  # an accelerator's or a strategy's package may raise any error
        raise ConfigurationError(f"{asked}: {error}") from error
    if options["precision"] != trainer.precision:
        device = trainer.strategy.root_device.type
        raise ConfigurationError(f"{asked}: {device} does not have this precision; give {trainer.precision}")
    if options.get("sync_batchnorm") and trainer.strategy.root_device.type == "cpu":
        raise ConfigurationError("trainer.sync_batchnorm=true is not allowed on cpu: torch has it for GPUs alone")
    if not torch.cuda.is_available():
        # Lightning sets it so that torch queries the driver for devices in a way that allows forks. Each optimizer step
        # repeats the query, which takes a tenth of a millisecond if there is no driver.
        os.environ.pop("PYTORCH_NVML_BASED_CUDA_CHECK", None)
    keep_freed_memory()
    torch.set_num_threads(threads)
    torch.utils.deterministic.fill_uninitialized_memory = False  # a debugging aid that costs time
    return trainer


def _check_processes(options: Group) -> None:
    """Raise an error unless Lightning starts the processes by a command, or torchrun or SLURM has started as many."""
    strategy = options.get("strategy", "auto")
    if isinstance(strategy, str) and any(kind in strategy for kind in ("spawn", "fork", "notebook")):
        raise ConfigurationError(f"trainer.strategy={strategy} is not allowed; its processes lose the curves; give ddp")
    devices, nodes = options["devices"], options["num_nodes"]
    started = os.environ.get("SLURM_NTASKS" if SLURMEnvironment.detect() else "WORLD_SIZE")
    if nodes > 1 and not started:
        raise ConfigurationError(
            f"trainer.num_nodes={nodes} is not allowed here: start the run on each machine, by torchrun or SLURM; "
            "without them it would wait for the others forever"
        )
    if started and isinstance(devices, int) and devices > 0 and started != str(devices * nodes):
        raise ConfigurationError(
            f"trainer.devices={devices} and trainer.num_nodes={nodes} ask for {devices * nodes} processes, but "
            f"{started} were started; start as many as they ask for"
        )


class _NoProfiler(PassThroughProfiler):
    """Measures nothing, and costs less than Lightning's own, which creates a generator a hundred times a step."""

    _nothing = nullcontext()

    def profile(self, action_name: str) -> AbstractContextManager[None]:
        return self._nothing


class ReseedEachEpoch(Callback):
    """Seeds torch, NumPy and Python at the start of an epoch by (seed, epoch, process), so also after a resume."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        process = torch.tensor([trainer.global_rank])
        epoch_seed = int(sample_seeds(self.seed, trainer.current_epoch, process)) % 2**32
        L.seed_everything(epoch_seed, verbose=False)


class Termination(Callback):
    """Lets SIGTERM end the run; under SLURM the training goes on until SLURM kills the job.

    SLURM sends SIGTERM some time before it ends the job and queues it again. If the process ends within this time,
    SLURM counts the job as finished and does not queue it again.
    """

    def __init__(self, say: Callable[[str], object]) -> None:
        self.say = say
        self._before = signal.getsignal(signal.SIGTERM)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if SLURMEnvironment.detect():  # Lightning restores the old handlers
            signal.signal(signal.SIGTERM, lambda *_: self.say("SLURM is about to end this job; trains on until then"))
        elif callable(self._before):  # Lightning's handler would wait for the other processes, which wait for this one
            signal.signal(signal.SIGTERM, self._before)


@cache
def _options_model() -> type[BaseModel]:
    """The Trainer's own signature as a pydantic model, with fewer values where a run allows fewer."""
    parameters = inspect.signature(L.Trainer.__init__).parameters
    fields: dict[str, Any] = {
        name: (_NARROWER.get(name, parameter.annotation), ... if name in _NEEDED else parameter.default)
        for name, parameter in parameters.items()
        if name not in ("self", "logger", "callbacks", "plugins", "enable_progress_bar")
    }
    # Strict, because '3' and 3 would be different runs.
    strict = ConfigDict(arbitrary_types_allowed=True, allow_inf_nan=False, strict=True, extra="forbid")
    return create_model("TrainerOptions", __config__=strict, **fields)
