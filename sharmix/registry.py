"""Names of activations: register a class under a name, list the names, build a module from a name.

The library registers its own in sharmix/activations.py.
"""

import difflib
import importlib
import inspect
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any, TypeVar

from sharmix._activation import Activation

ENTRY_POINT_GROUP = "sharmix.activations"

_ACTIVATIONS: dict[str, tuple[type[Activation], dict[str, Any]]] = {}
_ALIASES = {"sharmix": "sharmix_fixed"}  # beside `entmax`, which is fixed, too

Class = TypeVar("Class", bound=type[Activation])


def register(name: str, **preset: Any) -> Callable[[Class], Class]:
    """A class decorator that gives an activation a name for `build_activation`.

    Args:
        name: the name; one class may have several names.
        preset: arguments of the class's constructor that this name fixes.

    Raises:
        ValueError: the name belongs to another class, or to this class with another preset.
        TypeError: the name is no string, or the decorated object is no subclass of `Activation`.

    Example:
        >>> @sharmix.register("half_entmax")
        ... class HalfEntmax(sharmix.Entmax):
        ...     pass
        >>> sharmix.build_activation("half_entmax", alpha=1.75)
        HalfEntmax(alpha=1.75)
    """

    if not isinstance(name, str):
        raise TypeError(f'register takes a name, as in @sharmix.register("name"), got {name!r}')

    def decorator(found: Class) -> Class:
        _checked(name, found)
        holder, held = _ACTIVATIONS.get(_ALIASES.get(name, name), (found, preset))
        if (holder.__module__, holder.__qualname__, held) != (found.__module__, found.__qualname__, preset):
            raise ValueError(f"activation {name!r} is {holder.__qualname__} already, {held=}; choose another name")
        _ACTIVATIONS[name] = found, preset
        return found

    return decorator


def available_activations() -> tuple[str, ...]:
    """The names that `build_activation` accepts: first the registered names, then the entry points of other packages.

    Example:
        >>> "sharmix_learned" in sharmix.available_activations()
        True
    """
    others = sorted({point.name for point in entry_points(group=ENTRY_POINT_GROUP)} - set(_ACTIVATIONS))
    return (*_ACTIVATIONS, *others)


def build_activation(name: str, **parameters: Any) -> Activation:
    """Build an activation module `act`: `act(z)` gives probabilities, and `act.loss(z, y)` the Fenchel–Young loss.

    Args:
        name: one of `available_activations()`, `sharmix` for `sharmix_fixed`, or the path `package.module.Class` of an
            `Activation` subclass.
        parameters: arguments of the activation's constructor, such as `alpha`, `q`, `r` or `temperature`.

    Raises:
        ValueError: there is no such activation, or it does not have a parameter, or does not allow the value.
        TypeError: the path does not lead to an `Activation`.

    Example:
        >>> sharmix.build_activation("sharmix_learned", q=1.25, r=1.5)
        SharMiX(q=1.25, r=1.5, temperature=1.0, learned=('q', 'r'))
    """
    activation, preset = _find(name)
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    signature = inspect.signature(activation)
    allowed = [key for key, found in signature.parameters.items() if found.kind not in variadic and key not in preset]
    unknown = [parameter for parameter in parameters if parameter not in allowed]
    takes_any = inspect.Parameter.VAR_KEYWORD in [found.kind for found in signature.parameters.values()]
    if unknown and not takes_any:
        takes = ", ".join(allowed) or "none"
        raise ValueError(f"activation {name} has no parameter {', '.join(unknown)}; it takes {takes}")
    return activation(**preset, **parameters)


def _find(name: str) -> tuple[type[Activation], dict[str, Any]]:
    if not isinstance(name, str):
        raise TypeError(f"an activation is built from its name, a string; got {name!r}")
    if (own := _ALIASES.get(name, name)) in _ACTIVATIONS:
        return _ACTIVATIONS[own]
    registered = entry_points(group=ENTRY_POINT_GROUP, name=name)
    if registered:
        return _checked(name, next(iter(registered)).load()), {}
    if "." in name:
        return _checked(name, _import(name)), {}
    close = difflib.get_close_matches(name.lower(), available_activations(), n=2)
    hint = f"; did you mean {' or '.join(close)}?" if close else "."
    available = ", ".join(available_activations())
    raise ValueError(f"there is no activation {name!r}{hint} Available: {available}, or a path package.module.Class")


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
