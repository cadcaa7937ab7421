"""The memory of the training process."""

import ctypes
import sys

# Parameters of glibc's mallopt, in malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


def keep_freed_memory() -> None:
    """Let the C library keep what is freed for the next step, where it is glibc.

    By default it hands large blocks back to the system, which then has to fill them with zeros page by page, tens of
    thousands of pages a step.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, -1)
