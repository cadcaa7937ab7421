"""Checks of what callers hand in: one clear error, early, naming the value and what is allowed."""

import math
from collections.abc import Callable
from numbers import Real

import torch
from torch import Tensor

Parameter = float | Tensor

# What each entropy parameter may be: its least value, and whether that value itself is allowed.
_ALLOWED = {
    "q": (1.0, True),
    "alpha": (1.0, True),
    "r": (0.0, False),
    "temperature": (0.0, False),
    "alpha of alpha-ReLU": (1.0, False),
    "tau": (-math.inf, False),
}


def float_tensor(values: Tensor, name: str, dim: int) -> Tensor:
    """`values` as float32 or float64 with at least one entry along `dim`; half precision is widened to float32.

    Raises:
        TypeError, IndexError, ValueError: as for `checked_floats`.
    """
    checked_floats(values, name, dim)
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def checked_floats(values: Tensor, name: str, dim: int) -> Tensor:
    """`values` themselves.

    Raises:
        TypeError: not a tensor of real floating-point numbers.
        IndexError: there is no dimension `dim`.
        ValueError: there is no class along `dim`.
    """
    if not isinstance(values, Tensor) or not values.is_floating_point():
        kind = values.dtype if isinstance(values, Tensor) else type(values).__name__
        raise TypeError(f"{name} must be a floating-point tensor, got {kind}; convert it with .float()")
    if not -values.dim() <= dim < values.dim():
        raise IndexError(f"dim={dim} is out of range for {name} of shape {tuple(values.shape)}")
    if values.shape[dim] == 0:
        raise ValueError(f"{name} of shape {tuple(values.shape)} has no classes along dim={dim}; at least 1 is needed")
    return values


def entropy_parameters(values: Tensor, dim: int, **parameters: Parameter) -> list[Parameter]:
    """Entropy parameters, checked, one for each row of `values`.

    Args:
        values: the logits or probabilities they go with.
        dim: the dimension of `values` that holds the classes.
        parameters: numbers, or tensors that broadcast against `values` with size 1 along `dim`.

    Returns:
        For each parameter, in the order given, a number, a tensor of no dimension, or one that broadcasts to the shape
        of `values` with `dim` moved last and of size 1.

    Raises:
        TypeError: a parameter is neither a number nor a floating-point tensor.
        ValueError: a parameter's shape is not allowed; values are left to `checked_orders`.
    """
    return [_per_row(values, dim, name, value) for name, value in parameters.items()]


def _per_row(values: Tensor, dim: int, name: str, parameter: Parameter) -> Parameter:
    if not isinstance(parameter, Tensor):
        return number(parameter, name)
    if not parameter.is_floating_point():
        raise TypeError(f"{name} must be a number or a floating-point tensor, got {parameter.dtype}")
    if parameter.dim() == 0:
        return parameter
    if parameter.device != values.device:
        raise ValueError(f"{name} is on {parameter.device}, but what it goes with on {values.device}; move one of them")
    rows = list(values.shape)
    rows[dim] = 1
    try:
        expanded = parameter.expand(rows)
    except RuntimeError as error:
        raise ValueError(
            f"{name} of shape {tuple(parameter.shape)} does not broadcast against shape {tuple(values.shape)} "
            f"with size 1 along dim={dim}; reshape it to broadcast to {tuple(rows)}"
        ) from error
    return expanded.movedim(dim, -1)


def is_learned(parameter: Parameter) -> bool:
    """Whether it wants a gradient."""
    return isinstance(parameter, Tensor) and parameter.requires_grad


def typed(parameter: Parameter, like: Tensor) -> Tensor:
    """A parameter as a tensor of the dtype of `like`."""
    if isinstance(parameter, Tensor):
        return parameter.to(like.dtype)
    return torch.scalar_tensor(parameter, dtype=like.dtype, device=like.device)


def number(value: float, name: str) -> float:
    """`value` as a float; TypeError if it is no number."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number or a floating-point tensor, got {type(value).__name__}")
    return float(value)


def checked_number(value: float, name: str) -> float:
    """`value` as a float; TypeError if it is no number, ValueError if it is out of the range of parameter `name`."""
    value = number(value, name)
    least, included = _ALLOWED[name]
    if not (math.isfinite(value) and (value > least or (included and value == least))):
        raise ValueError(_out_of_range(name, value))
    return value


def checked_values(values: Tensor, name: str) -> Tensor:
    """`values`, all in the range of parameter `name`; ValueError if one is not."""
    least, included = _ALLOWED[name]
    allowed = (values >= least if included else values > least) & values.isfinite()
    if not allowed.all():
        raise ValueError(_out_of_range(name, values[~allowed][0].item()))
    return values


def checked(parameter: Parameter, name: str) -> Parameter:
    """A number or tensor in the range of parameter `name`, also where values are traced or batched."""
    if not isinstance(parameter, Tensor):
        return checked_number(parameter, name)
    if not parameter.is_floating_point():
        raise TypeError(f"{name} must be a number or a floating-point tensor, got {parameter.dtype}")
    allowed: Tensor = _ones_if_allowed(parameter.detach(), name)
    return parameter * allowed


def checked_distribution(targets: Tensor) -> Tensor:
    """1 for each row of soft targets [..., classes]; ValueError if a row is no distribution."""
    valid: Tensor = _ones_if_distribution(targets.detach())
    return valid


def checked_classes(targets: Tensor, classes: int, ignore_index: int) -> Tensor:
    """Class indices as int64, 0 where they are `ignore_index`; ValueError if one is out of range."""
    indices: Tensor = _class_indices(targets, classes, ignore_index)
    return indices


def label_error(label: float, classes: int, ignore_index: int) -> ValueError:
    """The error that a label is none of the classes."""
    return ValueError(
        f"label {label} is out of range for {classes} classes; "
        f"allowed are 0 to {classes - 1} and ignore_index={ignore_index}"
    )


def _out_of_range(name: str, value: float) -> str:
    least, included = _ALLOWED[name]
    bound = f" and {'>=' if included else '>'} {least:g}" if math.isfinite(least) else ""
    return f"{name}={value!r} is not allowed; it must be finite{bound}"


# The operators below look at values, which no traced or batched tensor lets Python do. Each returns something the
# caller goes on with, so that a compiler cannot drop the check as dead code.


@torch.library.custom_op("sharmix::ones_if_allowed", mutates_args=())
def _ones_if_allowed(values: Tensor, name: str) -> Tensor:
    return torch.ones_like(checked_values(values, name))


@torch.library.custom_op("sharmix::ones_if_distribution", mutates_args=())
def _ones_if_distribution(targets: Tensor) -> Tensor:
    if (targets < 0).any():
        raise ValueError(f"soft targets must be >= 0, got {targets[targets < 0][0].item()!r}")
    totals = targets.sum(-1)
    wrong = (totals - 1).abs() > 1e-3
    if wrong.any():
        raise ValueError(f"soft targets must sum to 1 over the classes, got a sum of {totals[wrong][0].item()!r}")
    return torch.ones_like(totals)


@torch.library.custom_op("sharmix::class_indices", mutates_args=())
def _class_indices(targets: Tensor, classes: int, ignore_index: int) -> Tensor:
    """The targets as int64, with 0 in place of `ignore_index`."""
    indices = torch.where(targets == ignore_index, 0, targets).long()
    outside = (indices < 0) | (indices >= classes)
    if outside.any():
        raise label_error(indices[outside][0].item(), classes, ignore_index)
    return indices


@_ones_if_allowed.register_fake
def _(values: Tensor, name: str) -> Tensor:
    return torch.ones_like(values)


@_ones_if_distribution.register_fake
def _(targets: Tensor) -> Tensor:
    return targets.new_ones(targets.shape[:-1])


@_class_indices.register_fake
def _(targets: Tensor, classes: int, ignore_index: int) -> Tensor:
    return torch.empty_like(targets, dtype=torch.int64)


def _batch_is_one_more_row_dimension(operator: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, int]]:
    def rule(info: object, in_dims: tuple[int, ...], tensor: Tensor, *constants: object) -> tuple[Tensor, int]:
        return operator(tensor.movedim(in_dims[0], 0), *constants), 0

    return rule


for _operator in (_ones_if_allowed, _ones_if_distribution, _class_indices):
    _operator.register_vmap(_batch_is_one_more_row_dimension(_operator))
