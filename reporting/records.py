"""Records of finished runs: one JSON object a run, kept as one line a run for each experiment."""

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from experiments.files import write_atomically
from experiments.identity import RECORD_SCHEMA

Record = dict[str, Any]

SPARSITY_METRICS = {"sparsity": float, "support": float, "coverage": float, "zero_true": float}
CLASSIFICATION_METRICS = {"accuracy": float, "macro_f1": float, "brier": float, **SPARSITY_METRICS}
TRANSLATION_METRICS = {"bleu": float, "chrf": float, "empty_preferred": float, "empty_possible": float}
TRANSLATION_METRICS |= {"accuracy": float, "sparsity_in_use": float, **SPARSITY_METRICS}
SHAPE: dict[str, Any] = {
    "schema": int,
    "experiment": str,
    "run_id": str,
    "seed": int,
    "config": {"activation": {"name": str}, "data": dict},
    "code": {"commit": str | None, "dirty": bool | None, "digest": str},
    "environment": {"python": str, "packages": dict, "hardware": dict},
    "data": {"split_hash": str},
    "curves": [{"epoch": int, "test/accuracy": float, "test/sparsity": float}],
    "metrics": {"test": SPARSITY_METRICS},
    "wall_time_seconds": float,
    "peak_memory_mib": float | None,
    "finished_at": str,
}
OF_CLASSIFICATION: dict[str, Any] = {"metrics": {"train": CLASSIFICATION_METRICS, "test": CLASSIFICATION_METRICS}}
OF_TRANSLATION: dict[str, Any] = {
    "epoch": int,
    "selected_by": str,
    "measured_by": {"bleu": str},
    "curves": [{"steps": float, "training_seconds": float, "dev/bleu": float}],
    "metrics": {"dev": TRANSLATION_METRICS, "test": TRANSLATION_METRICS},
}


class RecordError(ValueError):
    """Records that are missing, malformed or doubled."""


def records_path(results: Path, experiment: str) -> Path:
    """File that keeps the records of an experiment under the folder `results`."""
    return results / "records" / f"{experiment}.jsonl"


def missing_records(results: Path, experiment: str) -> str | None:
    """What is to be done where an experiment has no kept records, None where it has."""
    path = records_path(results, experiment)
    if path.is_file():
        return None
    return (
        f"{path}: there are no records of {experiment!r}; run the experiment, then "
        f"`python -m reporting.records --experiment {experiment} --results {results}`"
    )


def read_records(results: Path, experiment: str) -> list[Record]:
    """Read the kept records of an experiment.

    Args:
        results: folder that holds records/<experiment>.jsonl.
        experiment: name of the experiment.

    Returns:
        The records, in the order of the file.

    Raises:
        RecordError: for a missing file, naming the command that makes it; for a record of the
            wrong shape, naming file, line and key; for a run recorded twice.
    """
    if missing := missing_records(results, experiment):
        raise RecordError(missing)
    path = records_path(results, experiment)
    lines = path.read_text(encoding="utf-8").split("\n")  # splitlines also cuts inside JSON strings
    located = [(f"{path}, line {number}", line) for number, line in enumerate(lines, 1) if line.strip()]
    return _parse(located, experiment)


def finished_records(outputs: Path, experiment: str) -> list[Record]:
    """Read the record.json of every finished run of an experiment.

    Args:
        outputs: folder that holds the runs' folders, <experiment>/**/record.json.
        experiment: name of the experiment.

    Returns:
        The records, sorted by activation, q, r and seed.

    Raises:
        RecordError: where no run has finished, a record has the wrong shape or a run is doubled.
    """
    folder = outputs / experiment
    located = [(str(path), path.read_text("utf-8")) for path in folder.glob("**/record.json")]
    if not located:
        raise RecordError(
            f"{folder}: no finished run of {experiment!r} (no record.json below it); run it with "
            f"`python run.py experiment={experiment}`, or name another folder with --outputs"
        )
    return sorted(_parse(located, experiment), key=_order)


def collect(experiment: str, outputs: Path, results: Path) -> Path:
    """Replace the kept records of an experiment by those of its finished runs, less the folders of their machine.

    Args:
        experiment: name of the experiment.
        outputs: folder that holds the runs' folders.
        results: folder that keeps the records.

    Returns:
        The file written, <results>/records/<experiment>.jsonl.

    Raises:
        RecordError: as `finished_records`.
    """
    records = finished_records(outputs, experiment)
    path = records_path(results, experiment)
    for record in records:
        record["config"].pop("paths", None)  # where data and outputs lay decides nothing, and is nobody's business
    lines = (json.dumps(record, ensure_ascii=False, sort_keys=True) for record in records)
    write_atomically(path, "".join(f"{line}\n" for line in lines))
    return path


def _parse(located: Iterable[tuple[str, str]], experiment: str) -> list[Record]:
    records = []
    places: dict[tuple[str, int], str] = {}
    for place, text in located:
        record = _validated(text, place, experiment)
        run = record["run_id"], record["seed"]
        if run in places:
            raise RecordError(
                f"{place}: run_id={run[0]} with seed={run[1]} is also recorded in {places[run]}; remove one of the two"
            )
        places[run] = place
        records.append(record)
    return records


def _validated(text: str, place: str, experiment: str) -> Record:
    try:
        record = json.loads(text)
    except json.JSONDecodeError as error:
        raise RecordError(
            f"{place}: not a JSON object ({error}); repeat the run with force=true and collect its record again"
        ) from error
    _check(record, SHAPE, "", place)
    _check(record, OF_TRANSLATION if "bleu" in record["metrics"]["test"] else OF_CLASSIFICATION, "", place)
    for key, expected in (("schema", RECORD_SCHEMA), ("experiment", experiment)):
        if record[key] != expected:
            raise RecordError(
                f"{place}: {key}={record[key]!r}, allowed is {expected!r}; remove this record or repeat its run"
            )
    return record  # type: ignore[no-any-return]


def _check(value: Any, shape: Any, key: str, place: str) -> None:
    if isinstance(shape, dict):
        _check_type(value, dict, key, place)
        for name, inner in shape.items():
            inner_key = f"{key}.{name}" if key else name
            if name not in value:
                raise RecordError(f"{place}: the key {inner_key} is missing; repeat this run")
            _check(value[name], inner, inner_key, place)
    elif isinstance(shape, list):
        _check_type(value, list, key, place)
        for index, item in enumerate(value):
            _check(item, shape[0], f"{key}[{index}]", place)
    else:
        _check_type(value, shape, key, place)


def _check_type(value: Any, expected: Any, key: str, place: str) -> None:
    # JSON writes 1.0 as 1 in some writers, so integers pass as floats; true is no number, though.
    number = float(value) if isinstance(value, int) and not isinstance(value, bool) else value
    right = isinstance(value, expected) or isinstance(number, expected)
    if not right or (isinstance(value, bool) and expected is int):
        name = expected.__name__ if isinstance(expected, type) else str(expected)
        raise RecordError(f"{place}: {key or 'the record'}={value!r} is not {name}; repeat the run")


def _order(record: Record) -> tuple[str, float, float, int, str]:
    activation = record["config"]["activation"]
    q, r = (activation.get(key) or 0.0 for key in ("q", "r"))
    return activation["name"], q, r, record["seed"], record["run_id"]


def main(arguments: list[str] | None = None) -> None:
    """Command line: keep the records of an experiment's finished runs."""
    parser = argparse.ArgumentParser(prog="python -m reporting.records", description=__doc__)
    parser.add_argument("--experiment", required=True, help="name of the experiment")
    parser.add_argument("--outputs", type=Path, default=Path("outputs"), help="the runs' folder")
    parser.add_argument("--results", type=Path, default=Path("results"), help="the records' folder")
    options = parser.parse_args(arguments)
    try:
        print(collect(options.experiment, options.outputs, options.results))
    except RecordError as error:
        raise SystemExit(f"error: {error}") from error


if __name__ == "__main__":
    main()
