"""Where a result comes from: packages and hardware."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil
import torch

import sharmix

_PACKAGES = (
    "torch",
    "torchvision",
    "timm",
    "lightning",
    "hydra-core",
    "torchmetrics",
    "numpy",
    "pillow",
    "scikit-learn",
    "simplemma",
    "nltk",
    "entmax",
    "sentencepiece",
    "sacrebleu",
)


def environment(device: torch.device) -> dict[str, Any]:
    """The Python and package versions, what answers for `sharmix`, and the machine with the device trained on."""
    return {
        "python": platform.python_version(),
        "backend": {"code": sharmix.backend(device), "vectors": torch.backends.cpu.get_cpu_capability()},
        "packages": {name: found for name in _PACKAGES if (found := _version(name)) is not None},
        "hardware": {
            "processor": _processor(),
            "cores": os.cpu_count(),
            "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
            "accelerator": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        },
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
