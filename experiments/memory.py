"""The memory of this process: its peak, and how the C library keeps what is freed."""

import ctypes
import resource
import sys
from pathlib import Path

_MEBIBYTE = 2**20
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # parameters of glibc's mallopt, in malloc.h


def forget_peak_memory() -> None:
    """Start the peak anew, where the system can; jobs of one process would otherwise report the largest of all."""
    reset = Path("/proc/self/clear_refs")
    if reset.exists():
        reset.write_text("5")


def peak_memory_mib() -> float:
    """The most memory this process held since `forget_peak_memory`, in MiB."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024 / _MEBIBYTE
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _MEBIBYTE  # bytes, on macOS


def keep_freed_memory() -> None:
    """Let the C library keep freed memory for the next step, where it is glibc.

    By default it hands large blocks back to the system, which then has to fill them with zeros page by page, tens of
    thousands of pages a step.
    """
    if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, -1)
