"""Activations by name."""

import difflib
import importlib
import inspect
from importlib.metadata import entry_points
from typing import Any

from sharmix.activations import (
    Activation,
    AlphaReLU,
    Entmax,
    EntmaxPackage,
    LearnedEntmax,
    LearnedSharMiX,
    SharMiX,
    Softmax,
    Sparsemax,
)

ENTRY_POINT_GROUP = "sharmix.activations"

_ACTIVATIONS: dict[str, type[Activation]] = {
    "softmax": Softmax,
    "sparsemax": Sparsemax,
    "entmax": Entmax,
    "entmax_learned": LearnedEntmax,
    "alpha_relu": AlphaReLU,
    "sharmix_fixed": SharMiX,
    "sharmix_learned": LearnedSharMiX,
    "entmax_package": EntmaxPackage,
}


def available_activations() -> tuple[str, ...]:
    """The names `build_activation` knows: this library's, then those other packages registered as entry points."""
    others = sorted({point.name for point in entry_points(group=ENTRY_POINT_GROUP)} - set(_ACTIVATIONS))
    return (*_ACTIVATIONS, *others)


def build_activation(name: str, **parameters: Any) -> Activation:
    """An activation module: `act(z)` gives probabilities, `act.loss(z, y)` its Fenchel–Young loss.

    Args:
        name: one of `available_activations()`, or the path `package.module.Class` of an `Activation` subclass.
        parameters: what its constructor takes, such as `alpha`, `q`, `r` or `temperature`.

    Returns:
        A new module.

    Raises:
        ValueError: no such activation, or a parameter it does not take or allow.
        TypeError: the path does not lead to an `Activation`.
    """
    activation = _find(name)
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    allowed = [name for name, found in inspect.signature(activation).parameters.items() if found.kind not in variadic]
    unknown = [parameter for parameter in parameters if parameter not in allowed]
    if unknown:
        raise ValueError(
            f"activation {name} has no parameter {', '.join(unknown)}; it takes {', '.join(allowed) or 'none'}"
        )
    return activation(**parameters)


def _find(name: str) -> type[Activation]:
    if name in _ACTIVATIONS:
        return _ACTIVATIONS[name]
    registered = entry_points(group=ENTRY_POINT_GROUP, name=name)
    if registered:
        return _checked(name, next(iter(registered)).load())
    if "." in name:
        return _checked(name, _import(name))
    close = difflib.get_close_matches(name, available_activations(), n=1)
    hint = f"; did you mean {close[0]}?" if close else "."
    raise ValueError(
        f"there is no activation {name!r}{hint} Available: {', '.join(available_activations())}, "
        "or a class path package.module.Class"
    )


def _import(path: str) -> Any:
    module, _, attribute = path.rpartition(".")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"cannot import activation {path!r}: {error}") from error


def _checked(name: str, found: Any) -> type[Activation]:
    if not (inspect.isclass(found) and issubclass(found, Activation)):
        raise TypeError(f"activation {name!r} must be a subclass of sharmix.Activation, got {found!r}")
    return found
