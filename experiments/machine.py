"""The machine and the software that a run is computed by, and the memory of its process."""

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
    """The Python and package versions, what answers for `sharmix`, and the machine with the device trained on."""
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
    """Start the peak anew, where the system can; jobs of one process would otherwise report the largest of all."""
    with contextlib.suppress(FileNotFoundError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory_mib() -> float:
    """The most memory this process held since `forget_peak_memory`, in MiB."""
    if peak := re.search(r"VmHWM:\s*(\d+) kB", _text("/proc/self/status")):
        return int(peak[1]) * 1024 / _MEBIBYTE
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _MEBIBYTE  # bytes, on macOS


def keep_freed_memory() -> None:
    """Let the C library keep freed memory for the next step, where it is glibc.

    By default it hands large blocks back to the system, which then has to fill them with zeros page by page, tens of
    thousands of pages a step.
    """
    if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, -1)


def _text(file: str) -> str:
    """What the kernel of Linux says in a file; empty on other systems."""
    with contextlib.suppress(FileNotFoundError):
        return Path(file).read_text()
    return ""
