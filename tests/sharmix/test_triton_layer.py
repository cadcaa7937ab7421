"""The output layer on CUDA without a GPU: its host code with fake tensors."""

import contextlib

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

pytest.importorskip("triton")

import sharmix
from sharmix import _linear_loss
from sharmix._caller import _PLAIN
from sharmix._operators.triton import layer, solving, supports
from tests.sharmix.cases import every_case


@pytest.fixture
def fake_gpu(monkeypatch):
    """CUDA tensors without memory, and kernels that do nothing; returns the names of those that were launched."""
    launched = []
    for module in (solving, layer):
        monkeypatch.setattr(module, "launch", lambda kernel, *_, **constants: launched.append(kernel.__name__))
    monkeypatch.setattr(torch.cuda, "device_of", lambda tensor: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(solving, "multiprocessors", lambda device: 132)
    monkeypatch.setattr(layer, "_add_product", lambda *_: None)  # torch < 2.13 cannot trace it
    for name, answer in {"backend": "triton", "current_caller": _PLAIN, "is_plain_tensor": True}.items():
        monkeypatch.setattr(_linear_loss, name, lambda *_, answer=answer: answer)
    return launched


@pytest.mark.medium
def test_the_host_reads_no_value_of_the_device(fake_gpu, monkeypatch):
    """FakeTensorMode raises where a value is read, as by `item`, `bool` or `nonzero`."""
    numbers, known = (1.25, 1.5, 1.0), supports.Supports(on_cuda=False)
    monkeypatch.setattr(layer, "supports_of", lambda weight: known)
    with FakeTensorMode(allow_non_fake_inputs=True), every_case() as case:
        learned = [torch.ones((), device="cuda", requires_grad=True) for _ in numbers]
        for dtype in (torch.float32, torch.bfloat16):
            hidden, weight = (torch.ones(n, 64, device="cuda", dtype=dtype, requires_grad=True) for n in (5000, 40_000))
            bias = torch.ones(40_000, device="cuda", dtype=dtype, requires_grad=True)
            targets = torch.zeros(5000, dtype=torch.long, device="cuda")
            for orders in (numbers, learned):
                for room, smoothing in ((64, 0.0), (64, 0.1), (0, 0.0), (0, 0.1)):
                    with case(dtype=dtype, learned=orders is learned, room=room, smoothing=smoothing):
                        monkeypatch.setattr(known, "room", lambda classes, room=room: room)
                        fake_gpu.clear()
                        sharmix.linear_fenchel_young_loss(
                            hidden, weight, bias, targets, *orders, label_smoothing=smoothing
                        )
                        assert ("weight_of_lists" in fake_gpu) == (room > 0)
                        assert "loss_of_rows" in fake_gpu
            sharmix.linear_fenchel_young_loss(hidden, weight, bias, targets, 1.0, 1.0)  # softmax
