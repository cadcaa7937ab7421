"""The Lightning Trainer of a run: checks its options and devices, and makes its results repeatable."""

import inspect
import os
import warnings
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, NoReturn

import lightning.pytorch as L
import torch
from lightning.fabric.plugins.environments import SLURMEnvironment
from lightning.pytorch.profilers import PassThroughProfiler
from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from experiments.callbacks.checkpoints import AtomicCheckpointIO
from experiments.errors import ConfigurationError
from experiments.machine import keep_freed_memory
from experiments.settings import Group, closest, refusal

# Lightning's warnings that do not apply here: examples lie in memory, metrics are summed over processes already, the
# folder of a run holds its own files, a machine of a cluster may also run other commands, and nothing is logged
# within an epoch.
_ADVICE = (
    *(".*does not have many workers", ".*exists and is not empty", ".*recommended to use `self.log", ".*treespec"),
    *(".*`srun` command is available", ".*smaller than the logging interval"),
)

_FIXED = {"check_val_every_n_epoch": 1, "val_check_interval": None, "overfit_batches": 0, "barebones": False}


def build_trainer(options: Group, threads: int, **arguments: Any) -> L.Trainer:
    """The Trainer that options describe. It also sets torch so that a repeated run gives the same bits.

    Args:
        options: Lightning's own options.
        threads: number of this process's threads on the processor.
        **arguments: callbacks and loggers.

    Raises:
        ConfigurationError: an option does not exist or has a wrong value; there are no such devices, they do not have
            the precision, torchrun or SLURM has started another number of processes, or this machine has fewer cores
            than threads.
    """
    check_options(options)
    _check_cores(options, threads)
    options = options | ({"profiler": _NoProfiler()} if options.get("profiler") is None else {})
    for advice in _ADVICE:
        warnings.filterwarnings("ignore", message=advice)
    asked = ", ".join(f"trainer.{name}={options.get(name)}" for name in ("accelerator", "devices", "num_nodes"))
    slurm, precision = SLURMEnvironment.detect(), options.get("precision")
    started, devices = os.environ.get("SLURM_NTASKS" if slurm else "WORLD_SIZE"), options.get("devices")
    if started and isinstance(devices, int) and int(started) != (wanted := devices * options.get("num_nodes", 1)):
        raise ConfigurationError(
            f"{asked} ask for {wanted} processes, but {started} were started; they must be as many"
        )
    if options["num_nodes"] > 1 and not started:
        raise ConfigurationError(
            f"trainer.num_nodes={options['num_nodes']} is not allowed here: start the run on each machine, by torchrun "
            "or SLURM; without them it would wait for the others for ever"
        )
    # Otherwise, at SLURM's warning of the end, Lightning writes its own checkpoint to the current folder, and the next
    # run that starts there would continue from it. SLURM or submitit queues the run again without Lightning.
    plugins = [AtomicCheckpointIO(), *([SLURMEnvironment(auto_requeue=False)] if slurm else [])]
    try:
        trainer = L.Trainer(**options, **arguments, plugins=plugins)
    except Exception as error:  # an accelerator's or a strategy's package may raise any error
        raise ConfigurationError(f"{asked}, trainer.precision={precision}: {error}") from error
    if precision not in (None, trainer.precision):
        device = trainer.strategy.root_device.type
        raise ConfigurationError(f"trainer.precision={precision} cannot be had on {device}; give {trainer.precision}")
    if not torch.cuda.is_available():
        # Lightning sets it so that torch queries the driver for devices in a way that allows forks. Each optimizer step
        # repeats the query, which takes a tenth of a millisecond if there is no driver.
        os.environ.pop("PYTORCH_NVML_BASED_CUDA_CHECK", None)
    keep_freed_memory()
    torch.set_num_threads(threads)
    torch.utils.deterministic.fill_uninitialized_memory = False  # a debugging aid that costs time
    return trainer


def check_options(options: Group) -> None:
    """Raise a ConfigurationError for an option that the Trainer does not have, or for an impossible value."""
    known = _options_model()
    for name in known.model_fields:
        if name not in options and name != "enable_progress_bar":  # or Lightning's would apply, as deterministic=null
            raise ConfigurationError(f"trainer.{name} is missing; give trainer.{name}=VALUE")
    for name, value in options.items():
        if name not in known.model_fields:
            raise ConfigurationError(
                f"there is no setting trainer.{name} (given {value!r}).{closest(name, list(known.model_fields))} "
                f"Allowed: {', '.join(known.model_fields)}"
            )
    try:
        known.model_validate(options)
    except ValidationError as error:
        raise refusal(error, "trainer") from error

    def refuse(name: str, reason: str) -> NoReturn:
        value = "false" if options[name] is False else repr(options[name])
        raise ConfigurationError(f"trainer.{name}={value} is not allowed, {reason}")

    for name in ("max_epochs", "limit_val_batches", "limit_train_batches"):
        if options.get(name) == 0:
            refuse(name, "for it leaves nothing to record")
        if options.get(name) == 1 and isinstance(options[name], float):
            refuse(name, "for it would be the same run as 1, a single batch; null is all batches")
    for name, allowed in _FIXED.items():
        if options.get(name, allowed) != allowed:
            refuse(name, f"for every epoch is measured once; leave it {'null' if allowed is None else allowed}")
    if str(options.get("devices")).isdecimal() and not isinstance(options["devices"], int):
        refuse("devices", "for it is a text; give the number without quotes")
    if options.get("enable_checkpointing") is False:
        refuse(
            "enable_checkpointing",
            "for a run goes on from its checkpoint when it is killed; keep_weights=false keeps no weights afterwards",
        )
    if (options.get("gradient_clip_val") or 0) < 0:
        refuse("gradient_clip_val", "for it would turn the gradients round; null clips none")
    if (passes := options.get("accumulate_grad_batches", 1)) < 1:
        refuse("accumulate_grad_batches", "it must be at least 1")
    if passes > 1 and (options.get("limit_train_batches") or 0) % passes:
        refuse(
            "limit_train_batches",
            f"for it counts the parts of batches, trainer.accumulate_grad_batches={passes} to a step; give null or a "
            "multiple of these, not a share",
        )


def _check_cores(options: Group, threads: int) -> None:
    """Raise an error, before anything starts, if the options need more cores or devices than this machine has."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if threads > cores:
        raise ConfigurationError(f"threads={threads} is not allowed, for this process may use {cores} cores")
    devices, accelerators = options["devices"], torch.cuda.device_count()
    if isinstance(devices, int) and devices > max(cores, accelerators):
        raise ConfigurationError(
            f"trainer.devices={devices} is not allowed, for this machine has {cores} cores and {accelerators} GPUs"
        )


class _NoProfiler(PassThroughProfiler):
    """Measures nothing, and costs less than Lightning's own, which creates a generator a hundred times a step."""

    _nothing = nullcontext()

    def profile(self, action_name: str) -> AbstractContextManager[None]:
        return self._nothing


@cache
def _options_model() -> type[BaseModel]:
    """The Trainer's own signature as a pydantic model."""
    parameters = inspect.signature(L.Trainer.__init__).parameters
    fields: dict[str, Any] = {
        name: (parameter.annotation, parameter.default)
        for name, parameter in parameters.items()
        if name not in ("self", "logger", "callbacks", "plugins")
    }
    # Strict, because '3' and 3 would be different runs.
    strict = ConfigDict(arbitrary_types_allowed=True, allow_inf_nan=False, strict=True)
    return create_model("TrainerOptions", __config__=strict, **fields)
