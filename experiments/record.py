"""The record of a finished run: one typed model, which a run writes and `reporting` reads."""

import functools
import hashlib
import json
import re
import reprlib
from collections.abc import Iterator, Mapping
from datetime import datetime
from math import inf, isfinite
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator, ValidationError, model_validator

from experiments.errors import UserError
from experiments.identity import run_id

SCHEMA = 1  # the format of a record; increase it when readers must distinguish old records from new ones

# Hashes that identify the data. A record has one of them: of the contents, or in older records of the split.
_DATA_HASHES = ("content_hash", "split_hash")
_OLDER = ("name", "activation", "data", "model", "optimizer", "trainer")  # decisive settings without a module
_DEEPEST = 100  # levels of nested dictionaries and lists

# The allowed range of a number, by its name in the curves: metrics are "split/name". Others may be any finite number.
_RANGES = {
    r".+/((many|medium|few)_)?(accuracy|sparsity)": (0, 1),
    r".+/(macro_f1|coverage|zero_true|sparsity_in_use|support_to_\d+)": (0, 1),
    r".+/(exact_match|empty_preferred|empty_possible|unfinished)": (0, 1),
    r".+/(bleu|chrf)": (0, 100),
    r".+/(support|brier)": (0, inf),  # a loss of the user's own may be negative
    r"steps|learning_rate|examples_per_second|training_seconds|decoding_seconds": (0, inf),
}
_COUNTS = r"unreadable|records.*|repeated_.*|.*_(size|classes|class|types|tokens)|.*_skipped_.*"  # among facts of data
_ROUNDING = 1e-6  # relative, of means in single precision


class RecordError(UserError):
    """Records that are missing, malformed or doubled, or contradict themselves."""


def _number(value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value):
        raise ValueError("Input should be a finite number")
    return value


def _is_finite(value: float) -> bool:
    try:
        return isfinite(value)
    except OverflowError:  # an integer with hundreds of digits
        return False


def _not_negative(value: float) -> float:
    if value < 0:
        raise ValueError("Input should be at least 0")
    return value


def _time(text: str) -> str:
    try:
        zone = datetime.fromisoformat(text).tzinfo
    except ValueError:
        zone = None
    if zone is None:
        raise ValueError("Input should be a time with its zone, in ISO format")
    return text


def _sha256(text: str) -> str:
    if not re.fullmatch("[0-9a-f]{64}", text):
        raise ValueError("Input should be 64 hexadecimal digits")
    return text


def _file_name(text: str) -> str:
    if Path(text).name != text:
        raise ValueError("Input should be the name of a file, without a folder")
    return text


Number = Annotated[float, PlainValidator(_number)]  # whole numbers stay whole
Amount = Annotated[Number, AfterValidator(_not_negative)]


class _Open(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True, frozen=True)  # unknown keys are kept


class Code(_Open):
    """The code that computed the run; None for facts that git does not know."""

    commit: str | None
    dirty: bool | None  # whether the code differed from the commit
    digest: str  # a hash of all source files of the run
    files: dict[str, str] | None = None  # a hash of each source file, by its path; None in older records


class Environment(_Open):
    """The machine and the software of the run."""

    python: str
    packages: dict[str, Any]
    hardware: dict[str, Any]


class _Activation(_Open):
    name: str
    alpha: Number | None = None
    q: Number | None = None
    r: Number | None = None
    tau: Number | None = None
    temperature: Number | None = None
    objective: str | None = None
    parameters: dict[str, Any] = {}


class _Config(_Open):
    name: str
    seed: int
    activation: _Activation
    data: dict[str, Any]


class _Configured(_Open):
    config: _Config


class Record(_Open):
    """All facts that are kept of a finished run. Facts that occur twice must agree."""

    experiment: str
    run_id: str  # the hash of the settings that decide the result; runs that differ only in their seed share it
    seed: int = Field(ge=0)
    config: dict[str, Any]  # all settings
    code: Code
    environment: Environment
    data: dict[str, Any]  # facts about the data set
    curves: list[dict[str, Number]]  # a row for each epoch: `epoch`, metrics as "split/name", and other numbers
    metrics: dict[str, dict[str, Number]]  # of the reported epoch, by split and name
    wall_time_seconds: Amount
    peak_memory_mib: Amount | None
    finished_at: Annotated[str, AfterValidator(_time)]
    epoch: int | None = None  # the reported epoch; None for the last
    selected_by: str | None = None  # the metric that selected the epoch; None if the last epoch is reported
    measured_by: dict[str, str] = {}  # how metrics are computed, where there are several ways
    # the file of the trained weights, beside the record; None if they are not kept
    weights: Annotated[str, AfterValidator(_file_name)] | None = None
    weights_digest: Annotated[str, AfterValidator(_sha256)] | None = None  # at the end of that file
    weights_hash: Annotated[str, AfterValidator(_sha256)] | None = None

    @property
    def last_epoch(self) -> int:
        return len(self.curves)

    @property
    def reported_epoch(self) -> int:
        """The selected epoch, or else the last."""
        return self.last_epoch if self.epoch is None else self.epoch

    @model_validator(mode="before")
    @classmethod
    def _can_be_written(cls, content: Any) -> Any:
        for key, value, amiss in _amiss(content):
            raise ValueError(f"{key if len(key) < 80 else key[:77] + '...'}={reprlib.repr(value)}: it should {amiss}")
        return content

    @model_validator(mode="after")
    def _names_its_data(self) -> Self:
        found = {name: self.data[name] for name in _DATA_HASHES if name in self.data}
        if not found:
            raise ValueError(f"the key data.{_DATA_HASHES[0]} is missing")
        for name, value in found.items():
            if not isinstance(value, str):
                raise ValueError(f"data.{name}={reprlib.repr(value)}: it should be a text")
        for key, value in self.data.items():
            if isinstance(value, int) and value < 0 and re.fullmatch(_COUNTS, key):
                raise ValueError(f"data.{key}={value}: it should be at least 0")
        return self

    @model_validator(mode="after")
    def _agrees_with_its_settings(self) -> Self:
        try:
            _Configured.model_validate({"config": self.config})
        except ValidationError as error:
            raise ValueError(first_problem(error)) from error
        for key, same in {"experiment": "name", "seed": "seed"}.items():
            if (value := getattr(self, key)) != self.config[same]:
                raise ValueError(f"{key}={value!r} contradicts config.{same}={self.config[same]!r}")
        try:
            if self.run_id != (expected := settings_id(self.config)):
                raise ValueError(f"run_id={self.run_id!r} contradicts config, whose settings have {expected!r}")
        except KeyError as error:
            raise ValueError(f"the key config.{error.args[0]} is missing") from error
        return self

    @model_validator(mode="after")
    def _curves_are_of_every_epoch(self) -> Self:
        if not self.curves:
            raise ValueError("curves is empty")
        for number, row in enumerate(self.curves):
            if "epoch" not in row:
                raise ValueError(f"the key curves[{number}].epoch is missing")
            if type(row["epoch"]) is not int or row["epoch"] != number + 1:
                raise ValueError(f"curves[{number}].epoch={row['epoch']}: it should be {number + 1}, without a gap")
            if problem := out_of_range(row):
                raise ValueError(f"curves[{number}].{problem}")
        return self

    @model_validator(mode="after")
    def _metrics_agree_with_curves(self) -> Self:
        if not 1 <= self.reported_epoch <= self.last_epoch:
            raise ValueError(f"curves has no row for the reported epoch {self.reported_epoch}")
        number = self.reported_epoch - 1
        in_curves = {name: value for name, value in self.curves[number].items() if "/" in name}
        in_metrics = {f"{split}/{name}": value for split, of in self.metrics.items() for name, value in of.items()}
        for name in sorted(in_curves.keys() - in_metrics.keys()):
            raise ValueError(f"the key metrics.{name.replace('/', '.', 1)} is missing")
        for name in sorted(in_metrics.keys() - in_curves.keys()):
            raise ValueError(f"the key curves[{number}].{name} is missing")
        for name in sorted(in_curves):
            if in_curves[name] != in_metrics[name]:
                key = f"metrics.{name.replace('/', '.', 1)}={in_metrics[name]}"
                raise ValueError(f"{key}: it contradicts curves[{number}].{name}={in_curves[name]}")
        return self

    @model_validator(mode="after")
    def _reports_the_selected_epoch(self) -> Self:
        best = self.last_epoch
        if self.selected_by is not None:
            found = {row["epoch"]: row[self.selected_by] for row in self.curves if self.selected_by in row}
            if not found:
                raise ValueError(f"selected_by={self.selected_by!r}: curves has no such metric")
            best = int(max(found, key=found.__getitem__))  # the first of equal ones
        if self.reported_epoch != best:
            by = f"largest {self.selected_by}" if self.selected_by else "last numbers, for selected_by is null"
            raise ValueError(f"epoch={self.reported_epoch}: it should be {best}, which has the {by}")
        return self

    @classmethod
    def of_run(cls, **fields: Any) -> Self:
        """The record of a run that has just ended; raises a RecordError that names the first invalid field."""
        try:
            return cls(**fields)
        except ValidationError as error:
            raise RecordError(f"the record of this run cannot be kept: {first_problem(error)}") from error

    @property
    def data_hash(self) -> str:
        """The hash of the data with its name, because hashes with different names cannot be compared."""
        return next(f"{name} {self.data[name]}" for name in _DATA_HASHES if name in self.data)

    def to_json(self, indent: int | None = None) -> str:
        """The record as JSON text for `read_record`: the fields that were given, with sorted keys, and their digest.

        Raises:
            ValueError: for a number that JSON does not have, such as NaN among unknown keys.
        """
        content = self.model_dump(exclude_unset=True)
        content |= {"schema": SCHEMA, "digest": _digest(content)}
        return json.dumps(content, ensure_ascii=False, sort_keys=True, allow_nan=False, indent=indent)


def by_split(row: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """The numbers named "split/name" in a row of the curves, in the form of `Record.metrics`."""
    metrics: dict[str, dict[str, float]] = {}
    for column, value in row.items():
        split, slash, name = column.partition("/")
        if slash:
            metrics.setdefault(split, {})[name] = value
    return metrics


def out_of_range(row: Mapping[str, float]) -> str | None:
    """The first impossible number in a row of the curves, such as an accuracy of 7.9, with its allowed range."""
    for column, value in row.items():
        least, largest = value_range(column)
        if not least - _ROUNDING <= value <= largest * (1 + _ROUNDING):
            allowed = f"at least {least}" if largest == inf else f"between {least} and {largest}"
            return f"{column}={value}: it should be {allowed}"
    return None


@functools.cache
def value_range(column: str) -> tuple[float, float]:
    """The least and the largest value that a column of the curves may have."""
    return next((limits for names, limits in _RANGES.items() if re.fullmatch(names, column)), (-inf, inf))


def settings_id(config: Mapping[str, Any]) -> str:
    """The `run_id` of settings. Older settings, which name no module, are hashed by an older rule."""
    if "module" in config:
        return run_id(config)
    settings = json.dumps({key: config[key] for key in _OLDER}, sort_keys=True)
    return hashlib.sha256(settings.encode()).hexdigest()[:12]


def _amiss(content: Any, place: str = "", depth: int = 0) -> Iterator[tuple[str, Any, str]]:
    """The values that JSON or UTF-8 cannot hold: for each its key, the value, and the requirement."""
    if depth > _DEEPEST:
        yield place, content, f"nest at most {_DEEPEST} levels deep"
    elif isinstance(content, dict):
        for key, value in content.items():
            yield from _amiss(key, f"{place}.{key!r}".removeprefix("."))
            yield from _amiss(value, f"{place}.{key}".removeprefix("."), depth + 1)
    elif isinstance(content, list | tuple):
        for number, value in enumerate(content):
            yield from _amiss(value, f"{place}[{number}]", depth + 1)
    elif isinstance(content, str):
        if any("\ud800" <= character <= "\udfff" for character in content):
            yield place, content, "be text that UTF-8 can hold"
    elif isinstance(content, int | float) and not _is_finite(content):
        yield place, content, "be a finite number"


def read_text(path: Path, remedy: str) -> str:
    """The text of a file in UTF-8; raises a RecordError that names the fault and the remedy."""
    try:
        if path.exists() and not path.is_file():  # reading a pipe could wait for ever
            raise RecordError(f"{path}: not a file; {remedy}")
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RecordError(f"{path}: not a text in UTF-8 ({error.reason} at byte {error.start}); {remedy}") from error
    except OSError as error:
        raise RecordError(f"{path}: cannot be read ({error.strerror}); {remedy}") from error


def read_record(text: str, place: str) -> Record:
    """Read a record from its JSON text.

    Args:
        text: the text.
        place: where the text was found, for errors: a file, or a file and a line.

    Raises:
        RecordError: the text is no record; names the place, the key and the remedy.
    """
    again = "repeat the run with force=true and collect its record again"
    try:
        content = json.loads(text, object_pairs_hook=_without_doubles)
    except RecursionError as error:
        raise RecordError(f"{place}: not a record (it nests too deep); {again}") from error
    except ValueError as error:  # a number with too many digits raises no JSONDecodeError
        raise RecordError(f"{place}: not a JSON object ({error}); {again}") from error
    if not isinstance(content, dict):
        raise RecordError(f"{place}: {reprlib.repr(content)} is not a JSON object; remove it")
    schema, digest = content.pop("schema", None), content.pop("digest", None)
    if type(schema) is not int or schema != SCHEMA:
        raise RecordError(
            f"{place}: schema={reprlib.repr(schema)}, allowed is {SCHEMA!r}; remove this record or repeat its run with "
            "force=true"
        )
    try:
        record = Record.model_validate(content)
    except ValidationError as error:
        raise RecordError(f"{place}: {first_problem(error)}; repeat the run with force=true") from error
    if digest not in (None, _digest(content)):  # older records have none
        raise RecordError(f"{place}: its content does not have its digest, so a value was changed or damaged; {again}")
    return record


def _digest(content: Mapping[str, Any]) -> str:
    """The SHA-256 of the fields of a record."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def load_record(file: Path) -> Record:
    """The record in the record.json of a finished run; raises a RecordError that names the fault."""
    return read_record(read_text(file, "repeat the run with force=true"), str(file))


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} is there twice")
    return content


def first_problem(error: ValidationError) -> str:
    """The first problem that pydantic found, as one sentence that names the key."""
    # A misspelt key is reported before the key that is missing because of it.
    problem = min(error.errors(include_url=False), key=lambda problem: problem["type"] != "extra_forbidden")
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in problem["loc"]).removeprefix(".")
    if amiss := {"missing": "missing", "extra_forbidden": "not known"}.get(problem["type"]):
        return f"the key {key} is {amiss}"
    message = problem["msg"].removeprefix("Value error, ").replace("Input should", "it should")
    return f"{key}={reprlib.repr(problem['input'])}: {message}" if key else message
