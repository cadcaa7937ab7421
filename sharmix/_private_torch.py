"""Every private name of torch that this package uses: what a new torch can break, in one place."""

import ctypes
import sys

import torch
from torch import Tensor, nn
from torch._compile import _disable_dynamo as never_compiled  # imports torch._dynamo when called: 1 s
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _disable_current_modes as outside_of_trace
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

__all__ = ["never_compiled", "outside_of_trace"]

_LIBRARY = "torch_cpu.dll" if sys.platform == "win32" else torch._C.__file__  # elsewhere it finds what it links to


def kernel_doors() -> tuple[object, ...] | None:
    """What the CPU kernel needs of torch, in the order of `use_torch` in csrc/module.cpp; None where it is not there.

    The address of torch's parallel loop, in its stable C interface; then the members of Torch in csrc/tensors.h.
    """
    try:
        parallel_for = ctypes.cast(ctypes.CDLL(_LIBRARY).torch_parallel_for, ctypes.c_void_p).value
    except (OSError, AttributeError):
        return None
    types = Tensor, nn.Parameter, torch.float32, torch.float64, torch.int64
    doubles = torch.empty(0, dtype=torch.float64, device="cpu")
    transforms, modes, tracing = (
        torch._C._are_functorch_transforms_active,
        torch._C._len_torch_dispatch_stack,
        torch._C._get_tracing_state,
    )
    looks_on = transforms, modes, tracing, torch.is_grad_enabled, forward_ad
    return parallel_for, *types, torch.empty_like, doubles, torch.strided, *looks_on


def function_transforms_active() -> bool:
    """Whether the caller is inside a transform of `torch.func`."""
    return bool(torch._C._are_functorch_transforms_active())


def forward_mode_active() -> bool:
    """Whether tangents can be under way, by `torch.func` or by `forward_ad.dual_level`."""
    return bool(forward_ad._current_level >= 0)


def in_onnx_export() -> bool:
    """Whether `torch.onnx.export` traces the caller; of dynamo's trace too, to which torch's own function is False."""
    if not torch.compiler.is_exporting():
        return False
    from torch.onnx._internal.exporter import _flags

    return _flags._is_onnx_exporting


def traced_tensor(fake: Tensor) -> Tensor | None:
    """The parameter that a tensor stands for while `torch.export` traces; None for what the trace has computed."""
    converter = getattr(getattr(fake, "fake_mode", None), "fake_tensor_converter", None)
    if converter is None:
        return None
    memo = converter.meta_converter.tensor_memo
    traced = converter.meta_converter.describer.lookup_tensor.items()
    return next((tensor for tensor, number in traced if memo.get(number) is fake), None)


def has_lost_memory(tensor: Tensor) -> bool:
    """Whether a tensor's storage was resized to 0; torch itself would crash where it reads it."""
    if torch.compiler.is_compiling() or function_transforms_active() or dispatch_modes_active():
        return False
    if type(tensor) not in (Tensor, nn.Parameter) or not tensor.is_cpu or tensor.layout != torch.strided:
        return False
    if tensor._is_zerotensor() or torch._C._dispatch_keys(tensor).has(torch._C._dispatch_key_parse("Batched")):
        return False
    return tensor.numel() > 0 and tensor.data_ptr() == 0


def is_traced() -> bool:
    """Whether `torch.jit.trace` looks on."""
    return bool(torch.jit.is_tracing())  # type: ignore[attr-defined, no-untyped-call]


def dispatch_modes_active() -> bool:
    """Whether a mode such as FakeTensorMode sees every operator."""
    return bool(is_in_torch_dispatch_mode())


def forward_mode_depth() -> int:
    """How many forward-mode transforms of `torch.func` the caller is inside."""
    stack = torch._C._functorch.get_interpreter_stack() or []
    return sum(interpreter.key() == torch._C._functorch.TransformType.Jvp for interpreter in stack)
