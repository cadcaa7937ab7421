"""How torch runs the code that calls a map or loss. A public function asks once, and passes the answer on."""

from typing import Any, NamedTuple

import torch

from sharmix import _private_torch


class Caller(NamedTuple):
    """How torch runs the calling code.

    Attributes:
        is_compiled: torch.compile, torch.export or torch.onnx.export compiles it.
        is_traced: torch.jit.trace records its operators.
        is_transformed: a transform of torch.func runs it.
        has_tangents: its tensors can carry tangents, by torch.func or by `forward_ad.dual_level`.
        has_modes: a mode such as FakeTensorMode intercepts every operator.
    """

    is_compiled: bool
    is_traced: bool
    is_transformed: bool
    has_tangents: bool
    has_modes: bool

    @property
    def is_plain(self) -> bool:
        """Whether torch runs the code as Python does, with autograd in reverse at most."""
        return self is _PLAIN

    @property
    def can_read_values(self) -> bool:
        """Whether Python can read the values of tensors, and may choose by them what to compute."""
        return not (self.is_compiled or self.is_traced or self.is_transformed or self.has_modes)

    @property
    def needs_operators(self) -> bool:
        """Whether torch must see operators with registered derivatives: a saved program holds no Python function."""
        return self.is_compiled or self.is_traced

    @property
    def needs_composition(self) -> bool:
        """Whether a loss must consist of torch's own operations, which torch can transform or trace."""
        return self.is_transformed or self.has_tangents or self.is_traced

    @property
    def exports_to_onnx(self) -> bool:
        """Whether `torch.onnx.export` compiles the code; ONNX does not know the operators of this library."""
        return self.is_compiled and _private_torch.in_onnx_export()


_PLAIN = Caller(False, False, False, False, False)


def current_caller() -> Caller:
    is_compiled = torch.compiler.is_compiling()
    if not is_compiled and _private_torch.is_plain_call():
        return _PLAIN
    return Caller(
        is_compiled,
        _private_torch.is_traced(),
        bool(_private_torch.function_transforms_active()),
        _private_torch.forward_mode_active(),
        not is_compiled and _private_torch.dispatch_modes_active(),
    )


def is_last_derivative(grad: Any) -> bool:
    """Whether an implementation can read the gradient of a backward pass, and nobody will differentiate its result."""
    return not torch.is_grad_enabled() and _private_torch.is_plain_call() and _private_torch.is_plain_tensor(grad)
