"""The record of a finished run: one typed model, which a run writes and `reporting` reads."""

import json
import reprlib
from collections.abc import Mapping
from math import isfinite
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, PlainValidator, ValidationError, model_validator

SCHEMA = 1  # the shape of a record; raise it when readers must tell old records from new ones

_OPEN = ConfigDict(extra="allow", strict=True, frozen=True)  # unknown keys are kept
_REQUIRED = ("config.activation.name", "config.data", "data.split_hash")  # within the free dictionaries


class RecordError(ValueError):
    """Records that are missing, malformed or doubled."""


def _number(value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise ValueError("Input should be a finite number")
    return value


Number = Annotated[float, PlainValidator(_number)]  # whole numbers stay whole


class Code(BaseModel):
    """The code that computed the run.

    Attributes:
        commit: the git commit; None where git does not know it.
        dirty: whether the code differed from the commit; None where git does not know.
        digest: a hash of all source files of the run.
        files: a hash of each source file, by its path; None where the record does not have them.
    """

    model_config = _OPEN

    commit: str | None
    dirty: bool | None
    digest: str
    files: dict[str, str] | None = None


class Environment(BaseModel):
    """The machine and the software of the run.

    Attributes:
        python: the version of Python.
        packages: the versions of the packages used, by their names.
        hardware: facts about the machine.
    """

    model_config = _OPEN

    python: str
    packages: dict[str, Any]
    hardware: dict[str, Any]


class Record(BaseModel):
    """Everything that is kept of a finished run.

    Attributes:
        experiment: name of the experiment.
        run_id: the hash of the settings that decide the result; runs that differ in their seed alone share it.
        seed: the seed.
        config: all settings; `activation` with its `name` and `data` are always there.
        code: the code.
        environment: the machine and the software.
        data: facts about the data set; `split_hash` is always there.
        curves: one row for each epoch: `epoch`, metrics as "split/name", and other numbers, such as learned orders.
        metrics: metrics of the reported epoch, by split and name: what its row in `curves` holds under "split/name".
        wall_time_seconds: time of the run.
        peak_memory_mib: largest memory in use; None where the system does not tell.
        finished_at: date and time of the end, in ISO format.
        epoch: the reported epoch; None for the last.
        selected_by: the metric that selected the epoch; None where the last epoch is reported.
        measured_by: how metrics are computed, where there are several ways, by name.
        weights: name of the file with the trained weights, beside the record; None where they are not kept.
        weights_hash: a hash of the trained weights.
    """

    model_config = _OPEN

    experiment: str
    run_id: str
    seed: int
    config: dict[str, Any]
    code: Code
    environment: Environment
    data: dict[str, Any]
    curves: list[dict[str, Number]]
    metrics: dict[str, dict[str, Number]]
    wall_time_seconds: Number
    peak_memory_mib: Number | None
    finished_at: str
    epoch: int | None = None
    selected_by: str | None = None
    measured_by: dict[str, str] = {}
    weights: str | None = None
    weights_hash: str | None = None

    @property
    def last_epoch(self) -> int:
        """The last epoch of the run."""
        return max(int(row["epoch"]) for row in self.curves)

    @property
    def reported_epoch(self) -> int:
        """The epoch that the run reports: the selected one, or else the last."""
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
        reported = [number for number, row in enumerate(self.curves) if row["epoch"] == self.reported_epoch]
        if not reported:
            raise ValueError(f"curves has no row for the reported epoch {self.reported_epoch}")
        row = self.curves[reported[0]]
        in_curves = {(split, name) for split, named in by_split(row).items() for name in named}
        in_metrics = {(split, name) for split, named in self.metrics.items() for name in named}
        for split, name in sorted(in_curves - in_metrics):
            raise ValueError(f"the key metrics.{split}.{name} is missing")
        for split, name in sorted(in_metrics - in_curves):
            raise ValueError(f"the key curves[{reported[0]}].{split}/{name} is missing")
        return self

    def to_json(self, indent: int | None = None) -> str:
        """The record as JSON text, which `read_record` reads.

        Args:
            indent: spaces of a level; None for one line.

        Returns:
            The text: keys sorted, and only the fields that were given, so that an old record stays as it was.

        Raises:
            ValueError: for a number that JSON does not have, such as NaN among unknown keys.
        """
        content = {"schema": SCHEMA, **self.model_dump(exclude_unset=True)}
        return json.dumps(content, ensure_ascii=False, sort_keys=True, allow_nan=False, indent=indent)


def by_split(row: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Sort a row of the curves into the shape of `Record.metrics`.

    Args:
        row: numbers by name; those named "split/name" are metrics.

    Returns:
        The metrics by split and name, in the order of the row.
    """
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

    Returns:
        The record.

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
    message = problem["msg"].removeprefix("Value error, ").replace("Input should be", "it should be")
    if problem["type"] == "missing":
        return f"the key {key} is missing"
    if problem["type"] == "extra_forbidden":
        return f"the key {key} is not known"
    return f"{key}={reprlib.repr(problem['input'])}: {message}" if key else message
