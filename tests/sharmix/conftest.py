"""The implementations behind the library: a test that uses one of these fixtures runs once with each of them."""

import contextlib

import pytest
import torch

import sharmix
from sharmix._operators import autograd, cpu

LONG_WAY = "c++ by the operators"  # the way of every caller that is not plain
BACKENDS = sorted({sharmix.backend(), "torch"} | ({LONG_WAY} if cpu.kernel else set()))
BUILDS = {"AVX512": "avx512", "AVX2": "avx2", "DEFAULT": "baseline"}  # by what torch says of the processor
LOADED_BUILD = cpu.kernel.__name__.removeprefix("sharmix._kernel_") if cpu.kernel else None
OLDER_BUILDS = list(BUILDS.values())[list(BUILDS.values()).index(LOADED_BUILD) + 1 :] if LOADED_BUILD else []


def needs_kernel(test):
    """Leaves a test to `make test-slow` where no compiler built the kernel."""
    return test if cpu.kernel else pytest.mark.slow(test)


@contextlib.contextmanager
def selected(backend):
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
        if backend == "torch":
            stack.enter_context(sharmix.plain_torch())
        elif backend == LONG_WAY:
            patch.setattr(autograd, "goes_directly", lambda *_: False)
        elif backend in OLDER_BUILDS:
            use_older_build(backend, patch)
        yield


def use_older_build(name, patch):
    capability = next(key for key, build in BUILDS.items() if build == name)
    patch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    kernel = cpu._load()
    assert kernel.__name__ == f"sharmix._kernel_{name}"
    patch.setattr(cpu, "kernel", kernel)


def each_of(names):
    """A fixture: the tests of a module run with each implementation, in the quick tests with the one in use alone."""
    usual = sharmix.backend()
    parameters = [name if name == usual else pytest.param(name, marks=pytest.mark.medium) for name in names]

    @pytest.fixture(params=parameters, scope="module")
    def each(request):
        with selected(request.param):
            yield

    return each


each_backend = each_of(BACKENDS)  # by a node itself and by the operators
each_solver = each_of(sorted({sharmix.backend(), "torch"}))  # for calls that are not always one node
each_build = each_of(BACKENDS + OLDER_BUILDS)


@pytest.fixture
def launched(monkeypatch):
    """The names of the CUDA kernels that are launched, in order, on a GPU of 132 multiprocessors; none of them runs."""
    pytest.importorskip("triton")
    from sharmix._operators.triton import implementation, layer, solving

    names = []
    for module in (implementation, solving, layer):
        monkeypatch.setattr(module, "launch", lambda kernel, *_, **constants: names.append(kernel.__name__))
    monkeypatch.setattr(solving, "multiprocessors", lambda device: 132)
    return names
