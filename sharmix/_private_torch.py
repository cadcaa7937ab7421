"""The private names of torch that this package uses, in one place, since a new release of torch can break them.

Two more are used elsewhere: modules override `_load_from_state_dict`, and SparseAttention sets `_qkv_same_embed_dim` of
nn.MultiheadAttention, which tests/sharmix/test_multihead_attention.py tests. tests/sharmix/test_private_torch.py says
where each other name is tested.
"""

import ctypes
import functools
import pkgutil
import sys
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

_TENSORS = (Tensor, torch.nn.Parameter)
_LIBRARY = "torch_cpu.dll" if sys.platform == "win32" else torch._C.__file__  # elsewhere it finds what it links to


def _private(name: str) -> Any:
    """The object that a private name of torch refers to; ImportError if the installed torch has no such name."""
    try:
        return pkgutil.resolve_name(name)
    except (AttributeError, ImportError) as error:
        message = f"sharmix needs {name}, which torch {torch.__version__} lacks; install another release of torch"
        raise ImportError(message) from error


never_compiled = _private("torch._compile._disable_dynamo")  # imports torch._dynamo when called: 1 s
outside_of_trace = _private("torch.utils._python_dispatch._disable_current_modes")
_modes = _private("torch._C._len_torch_dispatch_stack")  # such as FakeTensorMode
function_transforms_active = _private("torch._C._are_functorch_transforms_active")  # those of torch.func
_interpreters = _private("torch._C._functorch.get_interpreter_stack")
_FORWARD_MODE = _private("torch._C._functorch.TransformType.Jvp")
_VMAP = _private("torch._C._functorch.TransformType.Vmap")
keeps_graph = _private("torch._C._autograd._get_current_graph_task_keep_graph")  # of a backward pass: retain_graph
_tracing_state = _private("torch._C._get_tracing_state")
_private("torch.autograd.forward_ad._current_level")  # it changes: read where it is needed


def parallel_loop() -> int | None:
    """The address of torch's parallel loop, from its stable C interface; ImportError if this torch lacks it."""
    try:
        return ctypes.cast(ctypes.CDLL(_LIBRARY).torch_parallel_for, ctypes.c_void_p).value
    except (OSError, AttributeError) as error:
        raise ImportError("this torch has no torch_parallel_for, which the kernel's threads need") from error


def is_plain_tensor(tensor: Any) -> bool:
    """Whether a kernel can read the tensor's memory: it is dense, of no subclass, and no wrapper of a transform."""
    if type(tensor) not in _TENSORS or tensor.layout is not torch.strided:
        return False
    try:
        return bool(tensor.data_ptr()) and not tensor.is_neg()
    except RuntimeError:  # a batch of a transform, or a gradient that is zero by a flag
        return False


def dispatch_modes_active() -> bool:
    """Whether a mode such as FakeTensorMode intercepts every operator."""
    return bool(_modes())


def is_plain_call() -> bool:
    """Whether no transform, no mode, no trace and no tangent sees the operators that the caller runs."""
    return (
        not function_transforms_active() and not _modes() and _tracing_state() is None and forward_ad._current_level < 0
    )


def forward_mode_active() -> bool:
    """Whether tensors can carry tangents, by `torch.func` or by `forward_ad.dual_level`."""
    return bool(forward_ad._current_level >= 0)


def in_onnx_export() -> bool:
    """Whether `torch.onnx.export` traces the caller, also in dynamo's trace, where torch's own function is False."""
    if not torch.compiler.is_exporting():
        return False
    try:
        from torch.onnx._internal.exporter._flags import _is_onnx_exporting
    except ImportError:
        return torch.onnx.is_in_onnx_export()
    return _is_onnx_exporting


def varies(number: float) -> bool:
    """Whether a compiler makes the number an input of its graph: one that changes from call to call, or NumPy's."""
    if not torch.compiler.is_compiling():
        return False
    from torch.fx.experimental.symbolic_shapes import has_static_value  # imports sympy

    return type(number) not in (int, float) or not has_static_value(number)


def traced_tensor(fake: Tensor) -> Tensor | None:
    """The parameter behind a fake tensor while `torch.export` traces; None if it is not known."""
    try:
        converter = fake.fake_mode.fake_tensor_converter.meta_converter  # type: ignore[attr-defined]
        memo, traced = converter.tensor_memo, converter.describer.lookup_tensor.items()
    except AttributeError:  # no fake tensor, or of another torch
        return None
    return next((tensor for tensor, number in traced if memo.get(number) is fake), None)


@functools.cache
def _resolved_group() -> Any:
    return _private("torch.distributed.distributed_c10d._resolve_process_group")  # not in every build of torch


def process_group(name: str) -> Any:
    """The process group of a name, `group.group_name`: operators take numbers, names and tensors alone.

    A compiler takes the group for a constant.
    """
    return _resolved_group()(name)


def is_traced() -> bool:
    """Whether `torch.jit.trace` traces the caller."""
    return bool(torch.jit.is_tracing())  # type: ignore[attr-defined, no-untyped-call]


def forward_mode_depth() -> int:
    """The number of nested forward-mode transforms of `torch.func` around the caller."""
    return sum(interpreter.key() == _FORWARD_MODE for interpreter in _interpreters() or [])


def vmap_active() -> bool:
    """Whether the caller is inside `torch.func.vmap`."""
    return any(interpreter.key() == _VMAP for interpreter in _interpreters() or [])


# `torch.compiler.assume_constant_result` sets the same attribute, but imports torch._dynamo, which takes a second.
vmap_active._dynamo_marked_constant = True  # type: ignore[attr-defined]
process_group._dynamo_marked_constant = True  # type: ignore[attr-defined]
