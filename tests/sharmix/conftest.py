"""The implementations behind the library: a test that uses one of these fixtures runs once with each of them."""

import contextlib

import pytest
import torch

import sharmix
from sharmix import _cpu

KERNEL_ALONE = "c++ without its nodes"  # as where torch was not there when the kernel was built
BACKENDS = sorted({sharmix.backend(), "torch"} | ({KERNEL_ALONE} if _cpu.node else set()))
BUILDS = {"AVX512": "avx512", "AVX2": "avx2", "DEFAULT": "baseline"}  # by what torch says of the processor
LOADED_BUILD = _cpu._kernel.__name__.removeprefix("sharmix._kernel_") if _cpu._kernel else None
OLDER_BUILDS = list(BUILDS.values())[list(BUILDS.values()).index(LOADED_BUILD) + 1 :] if LOADED_BUILD else []


@contextlib.contextmanager
def selected(backend):
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
        if backend == "torch":
            stack.enter_context(sharmix.plain_torch())
        elif backend == KERNEL_ALONE:
            patch.setattr(_cpu, "node", None)
        elif backend in OLDER_BUILDS:
            use_older_build(backend, patch, stack)
        yield


def use_older_build(name, patch, stack):
    capability = next(key for key, build in BUILDS.items() if build == name)
    patch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    kernel = _cpu._load()
    assert kernel.__name__ == f"sharmix._kernel_{name}"
    if _cpu.node:
        stack.callback(_cpu.node.use, _cpu._kernel.kernel)
        _cpu.node.use(kernel.kernel)
    patch.setattr(_cpu, "_kernel", kernel)


def parameters(names):
    """The implementation in use here, and the others, which are left out of the quick tests."""
    return [name if name == sharmix.backend() else pytest.param(name, marks=pytest.mark.slow) for name in names]


@pytest.fixture(params=parameters(BACKENDS), scope="module")
def each_backend(request):
    """The compiled kernel, where it was built, with and without its nodes of the autograd graph, and plain torch."""
    with selected(request.param):
        yield


@pytest.fixture(params=parameters(sorted({sharmix.backend(), "torch"})), scope="module")
def each_solver(request):
    """For calls that no node of the graph takes, such as those with soft targets or an order for each row."""
    with selected(request.param):
        yield


@pytest.fixture(params=parameters(BACKENDS + OLDER_BUILDS), scope="module")
def each_build(request):
    """Each backend, and the kernel's builds for older processors."""
    with selected(request.param):
        yield
