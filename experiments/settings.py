"""Settings: their types, the rules between them, and how a group of settings builds the object that it names.

Only the files in `conf/` hold the values and explain them.
"""

import logging
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, validate_call
from pydantic.dataclasses import dataclass

from experiments.errors import ConfigurationError, UserError

if TYPE_CHECKING:
    import sharmix

_Whole = Annotated[int, Field(strict=True)]  # strict: the text '3' would give another folder than the number 3
_Number = Annotated[float, Field(strict=True)]
YesNo = Annotated[bool, Field(strict=True)]
AtLeastOne = Annotated[_Whole, Field(ge=1, lt=2**31)]  # torch counts in 64 bits and multiplies sizes
NotNegative = Annotated[_Whole, Field(ge=0, lt=2**31)]
Workers = Annotated[NotNegative, Field(le=256)]  # processes; thousands would stop a machine
Seed = Annotated[_Whole, Field(ge=0, lt=2**32)]
Positive = Annotated[_Number, Field(gt=0)]
NotNegativeNumber = Annotated[_Number, Field(ge=0)]
Ratio = Annotated[_Number, Field(ge=1)]
OpenShare = Annotated[_Number, Field(gt=0, lt=1)]
Share = Annotated[_Number, Field(ge=0, lt=1)]
Three = Annotated[tuple[_Number, ...], Field(min_length=3, max_length=3)]
ThreePositive = Annotated[tuple[Positive, ...], Field(min_length=3, max_length=3)]


def _folder(path: str) -> str:
    if not path.strip():
        raise ValueError("should be a folder; is a variable of the shell not set?")
    if path.startswith("~"):
        raise ValueError("should be a folder without ~, which the shell replaces only where a word begins; give $HOME")
    return path


FolderName = Annotated[str, Field(pattern=r"^\w[\w .=+-]*$", max_length=200)]
Folder = Annotated[str, AfterValidator(_folder)]

_STRICT = ConfigDict(arbitrary_types_allowed=True, allow_inf_nan=False, extra="forbid")
validated = validate_call(config=_STRICT)  # decorates a constructor: each argument is checked against its annotation
# Decorates a class: each annotated attribute is an argument of its constructor, given by its name and checked likewise.
validated_class = dataclass(config=_STRICT, kw_only=True, eq=False, repr=False)


class Settings(BaseModel):
    """A group of settings. Unknown keys, infinite numbers and later changes raise an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class ActivationSettings(Settings):
    """An activation of the registry. Parameters that the activation does not have are None."""

    name: FolderName
    alpha: float | None = None
    q: float | None = None
    r: float | None = None
    tau: float | None = None
    temperature: float | None = None
    objective: str | None = None
    nonconcave: str | None = None
    parameters: dict[str, Any] = {}


class PathSettings(Settings):
    data: Folder | None
    outputs: Folder


Group = dict[str, Any]  # settings of an object that `_target_` names


class RunSettings(Settings):
    """All settings of one run, as `conf/config.yaml` composes them."""

    name: FolderName
    paths: PathSettings
    seed: Seed
    force: bool
    progress: Literal["auto", "bar", "lines", "none"]
    keep_weights: bool
    checkpoint_seconds: NotNegativeNumber
    threads: AtLeastOne
    tags: list[str]
    activation: ActivationSettings
    data: Group
    model: Group
    module: Group
    optimizer: Group
    trainer: Group
    callbacks: dict[str, Group | None]
    logger: dict[str, Group | None]


def checked_settings(config: Mapping[str, Any]) -> RunSettings:
    """The settings of a composed configuration; raises a ConfigurationError that names the first invalid setting."""
    try:
        settings = RunSettings.model_validate(config)
    except ValidationError as error:
        raise refusal(error) from error
    if (given := settings.data.get("seed", settings.seed)) != settings.seed:  # it would not be in the run's identity
        raise ConfigurationError(f"data.seed={given} is not allowed; it follows the run's: give seed={given}")
    return settings


def build(group: Group, key: str, kind: type = object, /, **arguments: Any) -> Any:
    """The object that a group names in `_target_`, built from the group's other settings and further arguments.

    Groups inside it that have a `_target_` are built first. Messages name the group by its `key` in the configuration.

    Raises:
        ConfigurationError: there is no such class, it is not of this kind, or a value is not allowed; names the key.
        UserError: as the class itself raises.
    """
    from hydra.errors import InstantiationException
    from hydra.utils import instantiate

    get_class_or_function(group, key)
    try:
        # Hydra is not used for the call: it would turn arguments that are dataclasses into configurations.
        found = instantiate(group, _partial_=True, _convert_="all")(**arguments)
    except (InstantiationException, TypeError, ValueError) as error:  # a ValidationError is a ValueError
        cause = error.__cause__ if isinstance(error, InstantiationException) else error
        if isinstance(cause, UserError):
            raise cause from None
        if isinstance(cause, ValidationError):
            inside = re.findall(r"full_key: (\S+)", str(error))  # Hydra's key of a group inside this group
            raise refusal(cause, ".".join([key, *inside])) from cause
        raise ConfigurationError(f"{key}: {group.get('_target_')} cannot be built: {cause or error}") from error
    if not isinstance(found, kind):
        raise ConfigurationError(f"{key}: {type(found).__name__} must be a {kind.__name__} of {kind.__module__}")
    return found


def check_values(group: Group, key: str) -> None:
    """Raise as `build` for a value that a `validated` class never allows, before its arguments from data are known."""
    if hasattr(getattr(get_class_or_function(group, key), "__init__", None), "raw_function"):
        try:
            build(group, key)  # builds nothing: it checks all values and misses the arguments from data
        except ConfigurationError as error:
            if not isinstance(error.__cause__, ValidationError) or not all(map(_is_missing, error.__cause__.errors())):
                raise


def get_class_or_function(group: Group, key: str) -> Callable[..., Any]:
    """The class or function that a group names in `_target_`; raises a ConfigurationError if there is none."""
    from hydra.utils import get_object

    target = group.get("_target_")
    logging.getLogger("hydra.utils").disabled = True  # it would print the error too
    try:
        found: object = get_object(target) if isinstance(target, str) else None
    except Exception as error:  # an import may fail with any error of the module's own
        raise ConfigurationError(f"{key}._target_={target} cannot be imported: {error}") from error
    if not callable(found):
        raise ConfigurationError(f"{key}._target_={target} is not allowed; it should be the path of a class")
    return found


def build_activation(settings: ActivationSettings, group: str = "activation") -> "sharmix.Activation":
    """The activation that settings name; a ConfigurationError if there is none, or if it does not allow a parameter.

    `dim` is no setting, because in all modules of an experiment the classes are the last dimension of the logits.
    """
    import sharmix  # imports torch, which a finished run does not need

    if "dim" in settings.parameters:
        given = settings.parameters["dim"]
        raise ConfigurationError(
            f"{group}.parameters.dim={given} is not allowed; an experiment's logits have their classes last"
        )
    named = settings.model_dump(exclude={"name", "parameters"}, exclude_none=True)
    try:
        return sharmix.build_activation(settings.name, **named | settings.parameters)
    except (ValueError, TypeError, ImportError, SyntaxError) as error:
        raise ConfigurationError(f"{group}={settings.name}: {error}") from error


def refusal(error: ValidationError, group: str = "") -> ConfigurationError:
    """The error for the first invalid setting, with its value and the allowed values."""
    errors = sorted(error.errors(include_url=False), key=_is_missing)  # a wrong value before a missing one
    first, place = errors[0], _setting(errors[0]["loc"])
    key = ".".join([*([group] if group else []), *place])
    if _is_missing(first):
        return ConfigurationError(f"{key} is missing; give {key}=VALUE")
    if first["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        return ConfigurationError(f"there is no setting {key} (given {key}={first['input']!r})")
    noise = r"^(Value error, |Input |\w+ (?=should ))| or instance of \w+"
    messages = (one["msg"] for one in errors if _setting(one["loc"]) == place)
    allowed = dict.fromkeys(re.sub(noise, "", message) for message in messages)
    return ConfigurationError(f"{key}={first['input']!r} is not allowed; it {', or '.join(allowed)}")


def _is_missing(problem: Mapping[str, Any]) -> bool:
    return str(problem["type"]).startswith("missing")


def _setting(place: tuple[int | str, ...]) -> list[str]:
    """The keys of an error's place, without the names of types that pydantic adds if several types are allowed."""
    return [str(part) for part in place if not re.fullmatch(r"int|float|bool|str|timedelta|[\w-]+\[.*\]", str(part))]
