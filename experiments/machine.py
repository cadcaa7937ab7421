"""The machine and the software that compute a run, and the memory of its process."""

import contextlib
import ctypes
import os
import platform
import re
import resource
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil
import torch

import sharmix

_PACKAGES = (
    *("torch", "torchvision", "timm", "lightning", "hydra-core", "torchmetrics", "numpy", "pillow", "scikit-learn"),
    *("simplemma", "nltk", "entmax", "sentencepiece", "sacrebleu"),
)
_MEBIBYTE = 2**20
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # parameters of glibc's mallopt, in malloc.h


def environment(device: torch.device) -> dict[str, Any]:
    """The Python and package versions, the backend of `sharmix`, and the machine with the device of the training."""
    packages = {}
    for name in _PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            packages[name] = version(name)
    processor = re.search(r"model name\s*:\s*(.*\S)", _text("/proc/cpuinfo"))
    return {
        "python": platform.python_version(),
        "backend": {"code": sharmix.backend(device), "vectors": torch.backends.cpu.get_cpu_capability()},
        "packages": packages,
        "hardware": {
            "processor": processor[1] if processor else platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
            "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
            "accelerator": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        },
    }


def forget_peak_memory() -> None:
    """Reset the peak, if the system can. Otherwise each job of a process would report the largest peak of all jobs."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory_mib() -> float:
    """The most memory this process held since `forget_peak_memory`, in MiB."""
    if peak := re.search(r"VmHWM:\s*(\d+) kB", _text("/proc/self/status")):
        return int(peak[1]) * 1024 / _MEBIBYTE
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _MEBIBYTE  # macOS counts bytes


def keep_freed_memory() -> None:
    """Make glibc keep freed memory for the next step; without glibc it does nothing.

    By default glibc returns large blocks to the system, which must then fill them with zeros again, tens of thousands
    of pages a step.
    """
    if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, -1)


def _text(file: str) -> str:
    """The text of one of the Linux kernel's files; empty on other systems."""
    with contextlib.suppress(FileNotFoundError):
        return Path(file).read_text()
    return ""
