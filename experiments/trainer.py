"""The Lightning Trainer of a run: its options checked, its devices there, its results the same every time."""

import inspect
import os
import warnings
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import lightning.pytorch as L
import torch
from lightning.fabric.plugins.environments import SLURMEnvironment
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.profilers import PassThroughProfiler
from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from experiments.callbacks.checkpoints import AtomicCheckpointIO
from experiments.errors import ConfigurationError
from experiments.memory import keep_freed_memory
from experiments.settings import Group, closest, refusal

# Lightning's advice that does not fit here: examples lie in memory, metrics are summed over processes already, the
# folder of a run holds its own files, and a machine of a cluster also runs what was not submitted to it.
_ADVICE = (
    *(".*does not have many workers", ".*exists and is not empty", ".*recommended to use `self.log", ".*treespec"),
    ".*`srun` command is available",
)


def build_trainer(options: Group, threads: int, **arguments: Any) -> L.Trainer:
    """The Trainer that options describe; torch is set to give the same bits again.

    Args:
        options: Lightning's own options.
        threads: of this process on the processor.
        **arguments: callbacks and loggers.

    Raises:
        ConfigurationError: an option does not exist or has a wrong value; there are no such devices, they do not have
            the precision, or torchrun or SLURM has started another number of processes.
    """
    check_options(options)
    options = options | ({"profiler": _NoProfiler()} if options.get("profiler") is None else {})
    for advice in _ADVICE:
        warnings.filterwarnings("ignore", message=advice)
    asked = ", ".join(f"trainer.{name}={options.get(name)}" for name in ("accelerator", "devices", "num_nodes"))
    _refuse_other_processes(options, asked)
    plugins: list[Any] = [AtomicCheckpointIO()]
    try:
        if SLURMEnvironment.detect():
            # Else Lightning answers SLURM's warning of the end with a checkpoint of its own in the current folder, from
            # which whatever run starts there next would go on. SLURM, or submitit, queues the run again by itself.
            plugins.append(SLURMEnvironment(auto_requeue=False))
        trainer = L.Trainer(**options, **arguments, plugins=plugins)
    except (ValueError, TypeError, RuntimeError, MisconfigurationException) as error:
        raise ConfigurationError(f"{asked}, trainer.precision={options.get('precision')}: {error}") from error
    if options.get("precision") not in (None, trainer.precision):
        device = trainer.strategy.root_device.type
        raise ConfigurationError(
            f"trainer.precision={options['precision']} cannot be had on {device}, which offers {trainer.precision}"
        )
    if not torch.cuda.is_available():
        # Lightning sets it so that torch asks the driver for devices in a way that allows forks. Each step of an
        # optimizer asks, which takes a tenth of a millisecond where there is no driver.
        os.environ.pop("PYTORCH_NVML_BASED_CUDA_CHECK", None)
    keep_freed_memory()
    torch.set_num_threads(threads)
    torch.utils.deterministic.fill_uninitialized_memory = False  # a debugging aid that costs time
    return trainer


def check_options(options: Group) -> None:
    """Raise a ConfigurationError for an option that the Trainer does not have, or a value of a wrong type."""
    known = _options_model()
    for name, value in options.items():
        if name not in known.model_fields:
            raise ConfigurationError(
                f"there is no setting trainer.{name} (given {value!r}).{closest(name, list(known.model_fields))} "
                f"Allowed: {', '.join(known.model_fields)}"
            )
    for name in ("max_epochs", "limit_val_batches", "limit_train_batches"):
        if options.get(name) == 0 and options[name] is not False:
            raise ConfigurationError(f"trainer.{name}=0 is not allowed, for it leaves nothing to record")
    for name, allowed in {
        "check_val_every_n_epoch": (1,),
        "val_check_interval": (None, 1.0),
        "overfit_batches": (0, 0.0),
        "barebones": (False,),
    }.items():
        if name in options and options[name] not in allowed:
            raise ConfigurationError(
                f"trainer.{name}={options[name]} is not allowed, for every epoch is measured once, on all of its data"
            )
    if options.get("enable_checkpointing") is False:
        raise ConfigurationError(
            "trainer.enable_checkpointing=false is not allowed, for a run goes on from its checkpoint when it is "
            "killed; keep_weights=false keeps no weights of a finished run"
        )
    try:
        known.model_validate(options)
    except ValidationError as error:
        raise refusal(error, "trainer") from error


class _NoProfiler(PassThroughProfiler):
    """Measures nothing, in less time than Lightning's own, which makes a generator a hundred times a step."""

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
    return create_model("TrainerOptions", __config__=ConfigDict(arbitrary_types_allowed=True), **fields)


def _refuse_other_processes(options: Group, asked: str) -> None:
    devices, nodes = options.get("devices"), options.get("num_nodes", 1)
    started = os.environ.get("SLURM_NTASKS") if SLURMEnvironment.detect() else os.environ.get("WORLD_SIZE")
    if started is not None and isinstance(devices, int) and int(started) != devices * nodes:
        raise ConfigurationError(
            f"{asked} ask for {devices * nodes} processes, but {started} were started; they must be as many"
        )
