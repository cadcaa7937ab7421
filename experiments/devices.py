"""The devices and processes a run trains on."""

import os

import torch
from lightning.fabric import Fabric
from lightning.fabric.plugins.environments import SLURMEnvironment
from lightning.fabric.utilities.exceptions import MisconfigurationException

from experiments.checkpoints import AtomicCheckpoints
from experiments.configuration import TrainerSettings
from experiments.errors import ConfigurationError
from experiments.memory import keep_freed_memory


def launched_fabric(settings: TrainerSettings) -> Fabric:
    """Devices, processes and precision as configured, every process running, and torch set to give the same bits again.

    Raises:
        ConfigurationError: there are no such devices, they do not have the precision, or torchrun or SLURM has
            started other processes.
    """
    processes = settings.devices * settings.nodes
    started = os.environ.get("SLURM_NTASKS") if SLURMEnvironment.detect() else os.environ.get("WORLD_SIZE")
    if started is not None and int(started) != processes:
        raise ConfigurationError(
            f"trainer.devices={settings.devices} and trainer.nodes={settings.nodes} ask for {processes} processes, but "
            f"{started} were started; they must be as many"
        )
    try:
        fabric = Fabric(
            accelerator=settings.accelerator,
            devices=settings.devices,
            num_nodes=settings.nodes,
            strategy="ddp" if processes > 1 else "auto",
            precision=settings.precision,
            plugins=[AtomicCheckpoints()],
        )
        fabric.launch()
    except (ValueError, RuntimeError, MisconfigurationException) as error:
        raise ConfigurationError(
            f"trainer.accelerator={settings.accelerator}, trainer.devices={settings.devices}, "
            f"trainer.nodes={settings.nodes} and trainer.precision={settings.precision} cannot be had: {error}"
        ) from error
    if (found := fabric.strategy.precision.precision) != settings.precision:
        raise ConfigurationError(
            f"trainer.precision={settings.precision} cannot be had on {fabric.device.type}, which offers {found}"
        )
    keep_freed_memory()
    torch.set_num_threads(settings.threads)  # launching several processes sets it too
    # cuBLAS is deterministic with a workspace of its own only, and looks once, when it starts.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # a debugging aid that costs time
    return fabric
