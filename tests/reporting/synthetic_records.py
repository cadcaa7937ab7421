"""Records as a finished run leaves them, made up for the tests."""

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from experiments.identity import run_id
from experiments.record import SCHEMA, Record, read_record
from reporting.records.groups import Group, label_runs, style_groups

USUAL = Path(__file__).with_name("record.json").read_text("utf-8")  # what the made-up records share
PARAMETERS = ("alpha", "q", "r", "tau", "temperature", "objective")


def make_record(
    activation: str = "softmax",
    seed: int = 21,
    experiment: str = "airline",
    test: dict[str, float] | None = None,
    train: dict[str, float] | None = None,
    epochs: int = 3,
    data: dict[str, Any] | None = None,
    facts: dict[str, Any] | None = None,
    **parameters: Any,
) -> dict[str, Any]:
    """A valid record of a run whose accuracy rises to its last.

    `test` and `train` replace its last metrics, `data` its data settings, `facts` what it tells of the data, and
    `parameters` the activation's.
    """
    record = json.loads(USUAL)
    given = {"train": train or {}, "test": test or {}}
    last = {split: metrics | given[split] for split, metrics in record["metrics"].items()}
    chosen = dict.fromkeys(PARAMETERS) | parameters
    config = {
        "name": experiment,
        "seed": seed,
        "activation": {"name": activation, **chosen, "parameters": {}},
        "data": {"name": experiment, **(data or {})},
        **{group: {} for group in ("model", "module", "optimizer", "trainer", "callbacks")},
        "threads": 1,
    }
    return record | {
        "experiment": experiment,
        "run_id": run_id(config),
        "seed": seed,
        "config": config,
        "data": record["data"] | (facts or {}),
        "curves": [
            {"epoch": epoch, **_learned(activation, parameters, epoch), **_measured(last, epoch, epochs)}
            for epoch in range(1, epochs + 1)
        ],
        "metrics": last,
        "epoch": epochs,
    }


def changed(record: dict[str, Any], **groups: dict[str, Any]) -> dict[str, Any]:
    """The record with settings changed, and the `run_id` that they have."""
    config = record["config"] | {name: record["config"].get(name, {}) | group for name, group in groups.items()}
    return record | {"config": config, "run_id": run_id(config)}


def as_read(record: dict[str, Any]) -> Record:
    """The record as `reporting` reads it."""
    return read_record(as_text(record), "a made-up record")


def grouped(*experiments: list[dict[str, Any]]) -> list[list[Group]]:
    """The groups of runs of each experiment, from its records."""
    return style_groups([label_runs([as_read(record) for record in records]) for records in experiments])


def as_text(record: dict[str, Any]) -> str:
    """The JSON text of a record, even of a broken one."""
    try:
        return Record(**record).to_json()
    except ValidationError:
        return json.dumps({"schema": SCHEMA, **record})


def of_other_code(record: dict[str, Any], **code: Any) -> dict[str, Any]:
    """The record of a run whose code differed in a file."""
    return record | {"code": record["code"] | {"digest": "0ther", "files": {"run.py": "0ther"}, **code}}


def _learned(activation: str, parameters: dict[str, Any], epoch: int) -> dict[str, float]:
    names = [name for name in ("alpha", "q", "r") if name in parameters and activation.endswith("_learned")]
    return {name: parameters[name] + 0.01 * epoch for name in names}


def _measured(last: dict[str, dict[str, float]], epoch: int, epochs: int) -> dict[str, float]:
    row = {f"{split}/{name}": value for split in last for name, value in last[split].items()}
    rise = 0.1 / epoch - 0.1 / epochs
    return {name: value - rise if "accuracy" in name else value for name, value in row.items()}


def keep_records(results: Path, records: list[dict[str, Any]], experiment: str = "airline") -> Path:
    """Write records to <results>/records/<experiment>.jsonl."""
    path = results / "records" / f"{experiment}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(as_text(record) + "\n" for record in records), "utf-8")
    return path


def finish_runs(outputs: Path, records: list[dict[str, Any]]) -> None:
    """Write each record where its run would leave it under `outputs`."""
    for record in records:
        folder = outputs / record["experiment"] / record["run_id"] / str(record["seed"])
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "record.json").write_text(as_text(record), "utf-8")
