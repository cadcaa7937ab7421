"""The implementations behind the library: a test that uses `each_backend` runs once with each of them."""

import contextlib

import pytest

import sharmix
from sharmix import _cpu

KERNEL_ALONE = "c++ without its nodes"  # as where torch was not there when the kernel was built
BACKENDS = sorted({sharmix.backend(), "torch"} | ({KERNEL_ALONE} if _cpu.node else set()))


@pytest.fixture(params=BACKENDS, scope="module")
def each_backend(request):
    """The compiled kernel, where it was built, with and without its nodes of the autograd graph, and plain torch."""
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
        if request.param == "torch":
            stack.enter_context(sharmix.plain_torch())
        if request.param == KERNEL_ALONE:
            patch.setattr(_cpu, "node", None)
        yield
