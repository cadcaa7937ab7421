"""Launches of kernels. A compiled kernel is kept, for Triton needs longer to look it up than to launch it."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

FUSION = {"enable_fp_fusion": True}  # multiplication and addition as one instruction; Triton's default changes in 3.10
_compiled: dict[Any, Any] = {}


def launch(
    kernel: Any, grid: Sequence[int], arguments: Sequence[Any], options: dict[str, Any], **constants: Any
) -> None:
    """kernel[grid](*arguments, **constants, **options). The constants are the last parameters, in their order."""
    grid = (*grid, 1, 1)[:3]
    given = tuple(map(_kind, arguments))
    key = kernel.__name__, given, *constants.values(), *options.values()
    compiled = _compiled.get(key)
    if compiled is None:
        _compiled[key] = kernel[grid](
            *arguments, *constants.values(), **FUSION, **options
        )  # None from Triton's interpreter
    else:
        compiled[grid](*arguments, *constants.values())


def ceiling(number: int, divisor: int) -> int:
    """⌈number/divisor⌉. Triton's own takes five microseconds, half as long as a launch."""
    return -(-number // divisor)


def power_of_two(number: int) -> int:
    """The least power of 2 that is at least the number. Triton's own takes five microseconds, too."""
    return 1 << max(number - 1, 0).bit_length()


def _kind(argument: Any) -> Any:
    """What of an argument Triton compiles a kernel for."""
    kind = type(argument)
    if isinstance(argument, Tensor):
        return argument.dtype, argument.get_device(), argument.data_ptr() % 16 == 0
    if kind is int:
        return argument == 1, argument % 16 == 0, -(2**31) <= argument < 2**31
    if isinstance(argument, tuple):
        return tuple(map(_kind, argument))
    return kind
