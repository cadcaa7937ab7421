"""The record of a finished run: one typed model, which a run writes and `reporting` reads."""

import hashlib
import json
import reprlib
from collections.abc import Mapping
from math import inf, isfinite
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationError

from experiments.errors import UserError
from experiments.files import read_file, text_of
from experiments.metric_catalogue import metric

SCHEMA = 1  # the format of a record; increase it when readers must distinguish old records from new ones
_ROUNDING = 1e-6  # relative, of means in single precision
_REMEDY = "repeat the run with force=true"


class RecordError(UserError):
    """Records that are missing, malformed or doubled, or contradict themselves."""


def _number(value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise ValueError("Input should be a finite number")
    return value


Number = Annotated[float, PlainValidator(_number)]  # whole numbers stay whole
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True, frozen=True)  # unknown keys are kept


class Code(_Part):
    """The code that computed the run; None for facts that git does not know."""

    commit: str | None
    dirty: bool | None  # whether the code differed from the commit
    digest: str  # a hash of all source files of the run
    files: dict[str, str]  # a hash of each source file, by its path


class Environment(_Part):
    """The machine and the software of the run."""

    python: str
    packages: dict[str, Any]
    hardware: dict[str, Any]


class Record(_Part):
    """All facts that are kept of a finished run. The digest in its file shows if a value was changed later."""

    experiment: str
    run_id: str  # the hash of the settings that decide the result; runs that differ only in their seed share it
    seed: int = Field(ge=0)
    config: dict[str, Any]  # all settings
    code: Code
    environment: Environment
    data: dict[str, Any]  # facts about the data set; its `content_hash` shows whether two runs used the same data
    curves: list[dict[str, Number]] = Field(min_length=1)  # a row for each epoch: `epoch`, "split/metric" and others
    metrics: dict[str, dict[str, Number]]  # of the reported epoch, by split and name
    measured_by: dict[str, str]  # how metrics are computed, where there are several ways
    selected_by: str | None  # the metric that selected the reported epoch; None if the last epoch is reported
    epoch: int  # the reported epoch
    weights: str | None  # the file of the trained weights, beside the record; None if they are not kept
    weights_digest: str | None  # the SHA-256 of that file; None in records of earlier versions
    weights_hash: str
    wall_time_seconds: Amount
    peak_memory_mib: Amount
    finished_at: str  # ISO 8601, with its time zone

    @property
    def last_epoch(self) -> int:
        return len(self.curves)

    def to_json(self, indent: int | None = None) -> str:
        """The record as JSON text for `read_record`, with sorted keys and the digest of its fields."""
        content = self.model_dump()
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
        least, largest = metric(column).least, metric(column).largest
        if not least - _ROUNDING <= value <= largest * (1 + _ROUNDING):
            allowed = f"at least {least}" if largest == inf else f"between {least} and {largest}"
            return f"{column}={value}: it should be {allowed}"
    return None


def read_text(path: Path, remedy: str) -> str:
    """The text of a file in UTF-8; raises a RecordError that names the fault and the remedy."""
    try:
        return text_of(read_file(path))
    except OSError as error:
        raise RecordError(f"{path}: cannot be read ({error.strerror}); {remedy}") from error
    except ValueError as error:
        raise RecordError(f"{path}: {error}; {remedy}") from error


def read_record(text: str, place: str) -> Record:
    """The record in a JSON text, found at a place: a file, or a file and a line.

    Raises:
        RecordError: the text is no record, or was changed; names the place, the key and the remedy.
    """
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:  # RecursionError: thousands of brackets
        raise RecordError(f"{place}: not a JSON object ({error}); {_REMEDY}") from error
    if not isinstance(content, dict):
        raise RecordError(f"{place}: {reprlib.repr(content)} is not a JSON object; remove it")
    schema, digest = content.pop("schema", None), content.pop("digest", None)
    if schema != SCHEMA:
        raise RecordError(f"{place}: schema={schema!r}, allowed is {SCHEMA}; remove this record or {_REMEDY}")
    try:
        record = Record.model_validate(content)
    except ValidationError as error:
        raise RecordError(f"{place}: {first_problem(error)}; {_REMEDY}") from error
    if digest != _digest(content):
        raise RecordError(f"{place}: its content does not have its digest, so a value was changed; {_REMEDY}")
    return record


def load_record(file: Path) -> Record:
    """The record in the record.json of a finished run; raises a RecordError that names the fault."""
    return read_record(read_text(file, _REMEDY), str(file))


def first_problem(error: ValidationError) -> str:
    """The first problem that pydantic found, as one sentence that names the key."""
    # A misspelt key is reported before the key that is missing because of it.
    problem = min(error.errors(include_url=False), key=lambda problem: problem["type"] != "extra_forbidden")
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in problem["loc"]).removeprefix(".")
    if amiss := {"missing": "missing", "extra_forbidden": "not known"}.get(problem["type"]):
        return f"the key {key} is {amiss}"
    message = problem["msg"].removeprefix("Value error, ").replace("Input should", "it should")
    return f"{key}={reprlib.repr(problem['input'])}: {message}" if key else message


def _digest(content: Mapping[str, Any]) -> str:
    """The SHA-256 of the fields of a record."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
