"""The record of a finished run: one typed model, which a run writes and `reporting` reads."""

import json
import reprlib
from collections.abc import Mapping
from math import isfinite
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, PlainValidator, ValidationError, model_validator

SCHEMA = 1  # the shape of a record; raise it when readers must tell old records from new ones

_REQUIRED = ("config.activation.name", "config.data", "data.split_hash")  # within the free dictionaries


class RecordError(ValueError):
    """Records that are missing, malformed or doubled."""


def _number(value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise ValueError("Input should be a finite number")
    return value


Number = Annotated[float, PlainValidator(_number)]  # whole numbers stay whole


class _Open(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True, frozen=True)  # unknown keys are kept


class Code(_Open):
    """The code that computed the run; None where git does not know."""

    commit: str | None
    dirty: bool | None  # whether the code differed from the commit
    digest: str  # a hash of all source files of the run
    files: dict[str, str] | None = None  # a hash of each source file, by its path; None in older records


class Environment(_Open):
    """The machine and the software of the run."""

    python: str
    packages: dict[str, Any]
    hardware: dict[str, Any]


class Record(_Open):
    """Everything that is kept of a finished run."""

    experiment: str
    run_id: str  # the hash of the settings that decide the result; runs that differ in their seed alone share it
    seed: int
    config: dict[str, Any]  # all settings
    code: Code
    environment: Environment
    data: dict[str, Any]  # facts about the data set
    curves: list[dict[str, Number]]  # a row for each epoch: `epoch`, metrics as "split/name", and other numbers
    metrics: dict[str, dict[str, Number]]  # of the reported epoch, by split and name
    wall_time_seconds: Number
    peak_memory_mib: Number | None
    finished_at: str  # in ISO format
    epoch: int | None = None  # the reported one; None for the last
    selected_by: str | None = None  # the metric that selected the epoch; None where the last epoch is reported
    measured_by: dict[str, str] = {}  # how metrics are computed, where there are several ways
    weights: str | None = None  # the file of the trained weights, beside the record; None where they are not kept
    weights_digest: str | None = None  # the digest at the end of that file
    weights_hash: str | None = None

    @property
    def last_epoch(self) -> int:
        return max(int(row["epoch"]) for row in self.curves)

    @property
    def reported_epoch(self) -> int:
        """The selected epoch, or else the last."""
        return self.last_epoch if self.epoch is None else self.epoch

    @model_validator(mode="after")
    def _has_required_keys(self) -> Self:
        for required in _REQUIRED:
            found: Any = vars(self)
            for key in required.split("."):
                if not isinstance(found, dict) or key not in found:
                    raise ValueError(f"the key {required} is missing")
                found = found[key]
        return self

    @model_validator(mode="after")
    def _metrics_agree_with_curves(self) -> Self:
        if not self.curves:
            raise ValueError("curves is empty")
        for number, row in enumerate(self.curves):
            if "epoch" not in row:
                raise ValueError(f"the key curves[{number}].epoch is missing")
        epochs = [row["epoch"] for row in self.curves]
        if self.reported_epoch not in epochs:
            raise ValueError(f"curves has no row for the reported epoch {self.reported_epoch}")
        number = epochs.index(self.reported_epoch)
        in_curves = {name for name in self.curves[number] if "/" in name}
        in_metrics = {f"{split}/{name}" for split, metrics in self.metrics.items() for name in metrics}
        for name in sorted(in_curves - in_metrics):
            raise ValueError(f"the key metrics.{name.replace('/', '.', 1)} is missing")
        for name in sorted(in_metrics - in_curves):
            raise ValueError(f"the key curves[{number}].{name} is missing")
        return self

    def to_json(self, indent: int | None = None) -> str:
        """The record as JSON text, which `read_record` reads: keys sorted, and only the fields that were given.

        Raises:
            ValueError: for a number that JSON does not have, such as NaN among unknown keys.
        """
        content = {"schema": SCHEMA, **self.model_dump(exclude_unset=True)}
        return json.dumps(content, ensure_ascii=False, sort_keys=True, allow_nan=False, indent=indent)


def by_split(row: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """The numbers of a row of the curves that are named "split/name", in the shape of `Record.metrics`."""
    metrics: dict[str, dict[str, float]] = {}
    for column, value in row.items():
        split, slash, name = column.partition("/")
        if slash:
            metrics.setdefault(split, {})[name] = value
    return metrics


def read_record(text: str, place: str) -> Record:
    """Read a record from its JSON text.

    Args:
        text: the text.
        place: where the text was found, for errors: a file, or a file and a line.

    Raises:
        RecordError: for text that is no record; names the place, the key and what to do.
    """
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise RecordError(
            f"{place}: not a JSON object ({error}); repeat the run with force=true and collect its record again"
        ) from error
    if not isinstance(content, dict):
        raise RecordError(f"{place}: {reprlib.repr(content)} is not a JSON object; remove it")
    if (schema := content.pop("schema", None)) != SCHEMA:
        raise RecordError(
            f"{place}: schema={schema!r}, allowed is {SCHEMA!r}; remove this record or repeat its run with force=true"
        )
    try:
        return Record.model_validate(content)
    except ValidationError as error:
        raise RecordError(f"{place}: {first_problem(error)}; repeat the run with force=true") from error


def first_problem(error: ValidationError) -> str:
    """The first problem that pydantic found, as one sentence that names the key."""
    # A misspelt key is reported before the key that is missing because of it.
    problem = min(error.errors(include_url=False), key=lambda problem: problem["type"] != "extra_forbidden")
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in problem["loc"]).removeprefix(".")
    if amiss := {"missing": "missing", "extra_forbidden": "not known"}.get(problem["type"]):
        return f"the key {key} is {amiss}"
    message = problem["msg"].removeprefix("Value error, ").replace("Input should be", "it should be")
    return f"{key}={reprlib.repr(problem['input'])}: {message}" if key else message
