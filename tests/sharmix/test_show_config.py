"""`show_config()`: what computes here, and why nothing faster does."""

import importlib.util
import platform
import sys

import pytest
import torch

import sharmix
from sharmix import _private_torch
from sharmix._operators import cpu
from sharmix._show_config import _INSTRUCTION_SETS
from tests.sharmix.conftest import needs_kernel


@pytest.fixture
def printed(capsys):
    """Calls show_config, and returns the lines of a part of what it prints."""

    def lines(part):
        assert sharmix.show_config() is None
        parts, name = {}, ""
        for line in capsys.readouterr().out.splitlines():
            if line.startswith("  "):
                parts[name].append(line.strip())
            else:
                name = line.split(":")[0]
                parts[name] = [line]
        return parts[part]

    return lines


def test_versions_implementation_and_threads(printed):
    assert printed("sharmix") == [f"sharmix: {sharmix.__version__}"]
    assert printed("torch") == [f"torch: {torch.__version__}"]
    assert printed("Python") == [f"Python: {platform.python_version()}"]
    lines = printed("CPU")
    assert lines[1] == f"implementation: {sharmix.backend()}"
    assert lines[-1] == f"threads: {torch.get_num_threads()}"
    assert any(line.startswith("instruction set: ") for line in lines) == (sharmix.backend() == "c++")


def test_plain_torch_by_request(printed):
    with sharmix.plain_torch():
        assert printed("CPU")[1:3] == ["implementation: torch", "not c++: sharmix.plain_torch() is active"]


@needs_kernel
def test_a_processor_without_avx512(printed, monkeypatch):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    monkeypatch.setattr(cpu, "kernel", cpu._load())
    assert printed("CPU")[1:4] == [
        "implementation: c++",
        "not AVX-512: this processor lacks it (torch reports AVX2)",
        "instruction set: AVX2",
    ]


@needs_kernel
@pytest.mark.parametrize("instructions", ["amx_bf16", "avx512_bf16", "bf16", "sve_bf16", ""])
def test_whether_output_layers_are_screened(printed, monkeypatch, instructions):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {instructions: True}, raising=False)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    lines = printed("CPU")
    assert ("output layers: screened by products in bfloat16" in lines) == bool(instructions)
    lacks = "not screening of output layers: torch uses no instructions for bfloat16 on this processor"
    assert (lacks in lines) == (not instructions)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert lacks in printed("CPU")  # without oneDNN torch has no products that use them


def test_why_no_kernel_loads(printed, monkeypatch):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")

    def reasons():
        monkeypatch.setattr(cpu, "kernel", cpu._load())
        _, implementation, *lines, _ = printed("CPU")
        assert implementation == "implementation: torch"
        assert [line.split(": ")[0] for line in lines] == [f"not {name}" for name in _INSTRUCTION_SETS.values()]
        return lines

    if importlib.util.find_spec("sharmix._kernel_baseline"):
        with monkeypatch.context() as patch:
            patch.setattr(_private_torch, "_LIBRARY", "no library")
            assert reasons()[-1].endswith("this torch has no torch_parallel_for, which the kernel's threads need")
        with monkeypatch.context() as patch:
            patch.setattr(cpu, "_DIGEST", "of other sources")
            assert "its kernel does not load: it was compiled from other C++ sources" in reasons()[-1]
    for kernel in _INSTRUCTION_SETS:
        monkeypatch.setitem(sys.modules, f"sharmix._kernel_{kernel}", None)  # an import of it fails
    assert all("was not compiled at installation" in line for line in reasons())


def test_cuda(printed, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", "13.2")
    assert sharmix.backend("cuda") == "torch"
    status = "status: experimental: tested on an H100 and an H200; attention's kernels by Triton's interpreter alone"
    assert printed("CUDA")[1:] == ["implementation: torch", status, "not triton: torch finds no CUDA device"]
    monkeypatch.setattr(torch.version, "cuda", None)
    assert printed("CUDA")[1:] == ["implementation: torch", status, "not triton: this torch is built without CUDA"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: sys if name == "triton" else find(name))
    assert printed("CUDA")[1:] == ["implementation: triton", status]
    with sharmix.plain_torch():
        why = "not triton: sharmix.plain_torch() is active"
        assert printed("CUDA")[1:] == ["implementation: torch", status, why]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "triton" else find(name))
    assert printed("CUDA")[1:] == ["implementation: torch", status, "not triton: the package triton is not installed"]
    monkeypatch.setattr(torch.version, "hip", "7.0")
    why = "this torch is built for ROCm, for which the kernels are not made"
    assert printed("CUDA")[1:] == ["implementation: torch", status, f"not triton: {why}"]
