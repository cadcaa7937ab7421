"""Settings: their types, the rules between them, and how a group of settings builds the object that it names.

The values, and what they mean, stand in `conf/` alone.
"""

import difflib
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, validate_call
from pydantic.dataclasses import dataclass

from experiments.errors import ConfigurationError, UserError

if TYPE_CHECKING:
    import sharmix

_Whole = Annotated[int, Field(strict=True)]  # strict: a text such as '3' would name another folder than the number
_Number = Annotated[float, Field(strict=True)]
YesNo = Annotated[bool, Field(strict=True)]
AtLeastOne = Annotated[_Whole, Field(ge=1)]
NotNegative = Annotated[_Whole, Field(ge=0)]
Seed = Annotated[_Whole, Field(ge=0, lt=2**32)]
Positive = Annotated[_Number, Field(gt=0)]
NotNegativeNumber = Annotated[_Number, Field(ge=0)]
Ratio = Annotated[_Number, Field(ge=1)]
OpenShare = Annotated[_Number, Field(gt=0, lt=1)]
Share = Annotated[_Number, Field(ge=0, lt=1)]
Three = Annotated[tuple[_Number, ...], Field(min_length=3, max_length=3)]
ThreePositive = Annotated[tuple[Positive, ...], Field(min_length=3, max_length=3)]

_STRICT = ConfigDict(arbitrary_types_allowed=True, allow_inf_nan=False, extra="forbid")
validated = validate_call(config=_STRICT)  # decorates a constructor: each argument is checked against its annotation
# Decorates a class: each annotated attribute is an argument of its constructor, given by its name and checked likewise.
validated_class = dataclass(config=_STRICT, kw_only=True, eq=False, repr=False)


class Settings(BaseModel):
    """A group of settings: unknown keys, infinite numbers and changes are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class ActivationSettings(Settings):
    """An activation of the registry. Parameters that the activation does not take are None."""

    name: str
    alpha: float | None = None
    q: float | None = None
    r: float | None = None
    tau: float | None = None
    temperature: float | None = None
    objective: str | None = None
    nonconcave: str | None = None
    parameters: dict[str, Any] = {}

    def arguments(self) -> dict[str, Any]:
        """The arguments of `sharmix.build_activation` after the name."""
        named = self.model_dump(exclude={"name", "parameters"}, exclude_none=True)
        return named | self.parameters


class PathSettings(Settings):
    data: str | None
    outputs: str


Group = dict[str, Any]  # settings of an object that `_target_` names


class RunSettings(Settings):
    """All settings of one run, as `conf/config.yaml` composes them."""

    name: str
    seed: Seed
    force: bool
    progress: Literal["auto", "bar", "lines", "none"]
    keep_weights: bool
    checkpoint_seconds: NotNegativeNumber
    threads: AtLeastOne
    objective: str | None
    tags: list[str]
    paths: PathSettings
    activation: ActivationSettings
    data: Group
    model: Group
    module: Group
    optimizer: Group
    trainer: Group
    callbacks: dict[str, Group | None]
    logger: dict[str, Group | None]


def checked_settings(config: Mapping[str, Any]) -> RunSettings:
    """The settings of a composed configuration; a ConfigurationError names the first that is not allowed."""
    if key := _not_utf8(config):
        raise ConfigurationError(f"{key}: the name is no UTF-8, which a record could not hold; give it another name")
    try:
        return RunSettings.model_validate(config)
    except ValidationError as error:
        raise refusal(error) from error


def _not_utf8(value: Any) -> str | None:
    """The first setting whose text cannot be written, as "key=text"; None where all can be."""
    if isinstance(value, Mapping):
        found = ((key, _not_utf8(inner)) for key, inner in value.items())
        return next((f"{key}.{inner}".replace(".=", "=") for key, inner in found if inner), None)
    if isinstance(value, list | tuple):
        return next(filter(None, map(_not_utf8, value)), None)
    text = str(value).encode(errors="backslashreplace").decode()
    return f"={text}" if isinstance(value, str) and text != value else None


def build(group: Group, key: str, **arguments: Any) -> Any:
    """The object that a group of settings names in `_target_`, built from its other settings and further arguments.

    Groups inside it that have a `_target_` are built first. Messages name the group by its `key` in the configuration.

    Raises:
        ConfigurationError: there is no such class, or a value is not allowed, naming the key and the value.
        UserError: as the class itself raises.
    """
    from hydra.errors import InstantiationException
    from hydra.utils import instantiate

    try:
        # Called here and not by Hydra, which would make configurations of the arguments that are dataclasses.
        return instantiate(group, _partial_=True, _convert_="all")(**arguments)
    except (InstantiationException, TypeError, ValueError) as error:  # a ValidationError is a ValueError
        cause = error.__cause__ if isinstance(error, InstantiationException) else error
        if isinstance(cause, UserError):
            raise cause from None
        if isinstance(cause, ValidationError):
            inside = re.findall(r"full_key: (\S+)", str(error))  # Hydra's place of a group inside this one
            raise refusal(cause, ".".join([key, *inside])) from cause
        raise ConfigurationError(f"{key}: {group.get('_target_')} cannot be built: {cause or error}") from error


def check_values(group: Group, key: str) -> None:
    """Raise as `build` for a value that the class refuses by itself, before its other arguments are known.

    A class whose other arguments are all known is built here once more than needed.
    """
    if not hasattr(getattr(get_class_or_function(group, key), "__init__", None), "raw_function"):
        return  # not `validated`: only the class itself knows what it allows
    try:
        build(group, key)
    except ConfigurationError as error:
        if not isinstance(error.__cause__, ValidationError) or not all(map(_is_missing, error.__cause__.errors())):
            raise


def get_class_or_function(group: Group, key: str) -> Callable[..., Any]:
    """The class or function that a group of settings names in `_target_`; a ConfigurationError where there is none."""
    from hydra.utils import get_object

    target = group.get("_target_")
    try:
        return get_object(target)
    except Exception as error:  # an import may fail with any error of the module's own
        raise ConfigurationError(f"{key}._target_={target} cannot be imported: {error}") from error


def build_activation(settings: ActivationSettings, group: str = "activation") -> "sharmix.Activation":
    """The activation that settings name; a ConfigurationError where there is none, or it does not allow a parameter.

    `dim` is no setting: the modules that an experiment builds give every activation logits with the classes last.
    """
    import sharmix  # imports torch, which a finished run can do without

    classes_last = "an experiment's logits have their classes last"
    if "dim" in settings.parameters:
        given = settings.parameters["dim"]
        raise ConfigurationError(f"{group}.parameters.dim={given} is not allowed; {classes_last}")
    try:
        return sharmix.build_activation(settings.name, **settings.arguments())
    except (ValueError, TypeError, ImportError) as error:
        note = f" (dim is not a setting: {classes_last})" if re.search(r"it takes .*\bdim\b", str(error)) else ""
        raise ConfigurationError(f"{group}={settings.name}: {error}{note}") from error


def refusal(error: ValidationError, group: str | None = None) -> ConfigurationError:
    """The error that names the first refused setting, its value and what is allowed."""
    errors = sorted(error.errors(include_url=False), key=_is_missing)  # a wrong value rather than a missing one
    first, place = errors[0], _setting(errors[0]["loc"])
    key = ".".join([*([group] if group else []), *place])
    if _is_missing(first):
        return ConfigurationError(f"{key} is missing; give {key}=VALUE")
    if first["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        return ConfigurationError(f"there is no setting {key} (given {key}={first['input']!r})")
    messages = (one["msg"] for one in errors if _setting(one["loc"]) == place)
    allowed = dict.fromkeys(re.sub(r"^(Value error, |Input |\w+ (?=should ))", "", message) for message in messages)
    return ConfigurationError(f"{key}={first['input']!r} is not allowed; it {', or '.join(allowed)}")


def _is_missing(problem: Mapping[str, Any]) -> bool:
    return str(problem["type"]).startswith("missing")


def _setting(place: tuple[int | str, ...]) -> list[str]:
    """The keys of an error's place, without the types that pydantic names where several are allowed."""
    return [str(part) for part in place if not re.fullmatch(r"int|float|bool|str|timedelta|[\w-]+\[.*\]", str(part))]


def closest(key: str, known: list[str]) -> str:
    """A hint at the known key that looks most like the given one; empty where none does."""
    found = difflib.get_close_matches(key, known, n=1)
    return f" Did you mean {found[0]}?" if found else ""
