"""Learned entropy parameters. Each stays in its range, with any optimizer and after any load of a state dict."""

import functools
import math
from collections.abc import Collection, Iterator, Sequence
from numbers import Real
from typing import Any
from weakref import ref

import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from sharmix._arguments import Order, number
from sharmix._private_torch import never_compiled
from sharmix._warn import warn

ORDERS = (1.01, 2.0)  # the paper's appendix E.4
RANGES = {"q": ORDERS, "r": ORDERS, "alpha": ORDERS, "temperature": (0.1, 10.0)}  # half-open

_ROUNDING = torch.finfo(torch.bfloat16).eps / 2  # the relative rounding of a checkpoint in the coarsest dtype
_STEPS = "_steps_without"  # of a module: the steps of optimizers that left it out; infinite once one has it
_learning: set[ref[nn.Module]] = set()  # a WeakSet cannot be iterated over while other threads build modules


class Learning(nn.Module):
    """A module that keeps its parameters named in `RANGES` in their ranges.

    After each step of an optimizer, the parameters that it trains are put back into their ranges. A loaded or assigned
    value that is out of range is replaced by the nearest value in range, with a warning. A NaN is kept, with a warning.
    """

    def register_parameter(self, name: str, param: nn.Parameter | None) -> None:
        super().register_parameter(name, param)
        if param is not None and name in RANGES:
            _correct(param, name, name)
            _keep_in_range(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        if next(_learned_parameters(self), None):
            _keep_in_range(self)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *arguments)
        for name, parameter in _learned_parameters(self):
            _correct(parameter, name, prefix + name)
        fixed = [name for name in RANGES if prefix + name in state_dict and isinstance(getattr(self, name, None), Real)]
        if fixed:
            names = [*(name for name, _ in _learned_parameters(self)), *fixed]
            error_messages: list[str] = arguments[-1]
            error_messages.append(
                f"{', '.join(prefix + name for name in fixed)}: learned in this state, and a number in this "
                f"{type(self).__name__}; build it with learned={names}"
            )

    @torch.no_grad()
    def project_(self) -> None:
        """Put every learned parameter back into its range, by the rule of the paper. Optimizer steps do so, too."""
        for name, parameter in _learned_parameters(self):
            parameter.clamp_(*limits(name, parameter.dtype))


def learned_names(learned: bool | Sequence[str], allowed: tuple[str, ...], default: tuple[str, ...]) -> tuple[str, ...]:
    """The names among `allowed` that `learned` selects, where True stands for `default`; ValueError for others."""
    names = default * learned if isinstance(learned, bool) else learned
    names = (names,) if isinstance(names, str) else names
    if not isinstance(names, Collection) or not all(name in allowed for name in names):
        raise ValueError(f"learned={learned!r} is not allowed; it must be a bool or names among {allowed}")
    return tuple(dict.fromkeys(names))


def learned(name: str, start: Order) -> nn.Parameter:
    """A parameter `name` whose start is a number or a tensor of numbers; ValueError if the start is out of range."""
    least, bound = RANGES[name]
    dtype = torch.get_default_dtype()
    if isinstance(start, Tensor):
        values = rounded = start.detach()
        device = values.device
    else:
        values, device = torch.tensor(number(start, name), dtype=torch.double, device="cpu"), torch.get_default_device()
        rounded = values.to(dtype)  # float32 rounds 1.01 down, and a parameter that stands there is a start
    outside = ~((rounded >= least) & (values < bound))
    if not values.is_meta and outside.any():
        value = values[outside][0].item()
        raise ValueError(f"{name}={value:g} is not allowed as a start; it must lie in [{least}, {bound})")
    return nn.Parameter(values.to(device, dtype, copy=True).clamp_(*limits(name, dtype)))


def limits(name: str, dtype: torch.dtype) -> tuple[float, float]:
    """The smallest and the largest allowed number of a dtype, for the parameter `name`."""
    least, bound = RANGES[name]
    return least, bound * (1 - torch.finfo(dtype).eps / 2)


def _learned_parameters(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    own = module._parameters  # looked up by name, not iterated over: another thread may still build the module
    return ((name, parameter) for name in RANGES if (parameter := own.get(name)) is not None)


@torch.no_grad()
def _correct(parameter: nn.Parameter, name: str, key: str) -> None:
    """Put a parameter into its range; warn if it is outside by more than rounding."""
    values = parameter.detach()
    if type(values) is not Tensor or values.is_meta:  # sharded or fake: the values cannot be read
        parameter.clamp_(*limits(name, values.dtype))
        return
    lowest, highest = values.min().item(), values.max().item()
    least, bound = RANGES[name]
    if lowest < least or highest >= bound:  # not in place: after load_state_dict(assign=True) it is the caller's tensor
        parameter.data = values.clamp(*limits(name, values.dtype))
    if not (lowest >= least * (1 - _ROUNDING) and highest <= bound):  # also true for NaN
        found = " to ".join(dict.fromkeys((f"{lowest:g}", f"{highest:g}")))
        then = "no forward pass takes it" if math.isnan(lowest) else "the nearest inside replaces it"
        warn(f"{key}={found} is out of the range [{least}, {bound}) of a learned {name}; {then}")


def _keep_in_range(module: nn.Module) -> None:
    _learning.add(ref(module, _learning.discard))
    _watch_optimizers()


@functools.cache
def _watch_optimizers() -> None:
    # torch.compile must not trace the hooks: it would compile the optimizer's step again for each new or lost module.
    register_optimizer_step_pre_hook(never_compiled(_project_in_closure))
    register_optimizer_step_post_hook(never_compiled(_after_step))


def _after_step(optimizer: Optimizer, *_: object) -> None:
    for module, left in _project_owned(optimizer):
        _count_step_without(module, left)


@torch.no_grad()
def _project_owned(optimizer: Optimizer) -> list[tuple[nn.Module, list[str]]]:
    """Put the parameters of one optimizer into their ranges.

    Parameters of other optimizers do not change: a graph that is still to be differentiated may hold them.

    Returns:
        The modules of which the optimizer leaves out parameters with gradients, and the names of these.
    """
    owned = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    without = []
    for module in filter(None, (reference() for reference in _learning.copy())):
        left = []
        for name, parameter in _learned_parameters(module):
            if id(parameter) in owned:
                parameter.clamp_(*limits(name, parameter.dtype))
                module.__dict__[_STEPS] = math.inf
            elif parameter.grad is not None:
                left.append(name)
        if left:
            without.append((module, left))
    return without


def _count_step_without(module: nn.Module, left: Sequence[str]) -> None:
    """Warn at the second step that leaves out a module: the first may be of the first of two optimizers."""
    module.__dict__[_STEPS] = steps = module.__dict__.get(_STEPS, 0) + 1
    if steps == 2:
        message = f"no optimizer has the learned {' and '.join(left)} of {type(module).__name__}, which get gradients"
        remedy = "give the optimizer both: [*network.parameters(), *criterion.parameters()]"
        warn(f"{message}; {remedy}")


def _project_in_closure(
    optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Wrap a closure so that parameters are in range when it computes the loss: LBFGS calls it within one step."""
    given = kwargs.get("closure", args[1] if len(args) > 1 else None)
    if not callable(given):
        return None

    def closure() -> Any:
        _project_owned(optimizer)
        return given()

    if "closure" in kwargs:
        return args, kwargs | {"closure": closure}
    return (args[0], closure, *args[2:]), kwargs
