"""The records of an experiment: collected from its finished runs, and kept as one line for each run."""

from collections.abc import Iterable
from pathlib import Path

from experiments.files import write_atomically
from experiments.record import Record, RecordError, read_record


def records_path(results: Path, experiment: str) -> Path:
    """File that keeps the records of an experiment under the folder `results`."""
    return results / "records" / f"{experiment}.jsonl"


def missing_records(results: Path, experiment: str) -> str | None:
    """What to do where an experiment has no kept records; None where it has some."""
    path = records_path(results, experiment)
    if path.is_file():
        return None
    return (
        f"{path}: there are no records of {experiment!r}; run the experiment, then "
        f"`python -m reporting collect {experiment} --results {results}`"
    )


def read_records(results: Path, experiment: str) -> list[Record]:
    """Read the kept records of an experiment.

    Args:
        results: folder that holds records/<experiment>.jsonl.
        experiment: name of the experiment.

    Returns:
        The records, in the order of the file.

    Raises:
        RecordError: for a missing file, naming the command that makes it; for a malformed record, naming file, line
            and key; for a run recorded twice.
    """
    if missing := missing_records(results, experiment):
        raise RecordError(missing)
    path = records_path(results, experiment)
    lines = path.read_text(encoding="utf-8").split("\n")  # splitlines also cuts inside JSON strings
    return _read_all(((f"{path}, line {n}", line) for n, line in enumerate(lines, 1) if line.strip()), experiment)


def finished_records(outputs: Path, experiment: str) -> list[Record]:
    """Read the record.json of every finished run of an experiment.

    Args:
        outputs: folder that holds the runs' folders, <experiment>/**/record.json.
        experiment: name of the experiment.

    Returns:
        The records, sorted by activation, q, r and seed.

    Raises:
        RecordError: where no run has finished, a record is malformed, or a run is recorded twice.
    """
    folder = outputs / experiment
    records = _read_all(((str(path), path.read_text("utf-8")) for path in folder.glob("**/record.json")), experiment)
    if not records:
        raise RecordError(
            f"{folder}: no finished run of {experiment!r} (no record.json below it); run it with "
            f"`python run.py experiment={experiment}`, or name another folder with --outputs"
        )
    return sorted(records, key=_order)


def collect(experiment: str, outputs: Path, results: Path, replace: bool = False) -> Path:
    """Keep the records of an experiment's finished runs, in place of those kept before.

    Folders of the machine are not kept: they do not change the result.

    Args:
        experiment: name of the experiment.
        outputs: folder that holds the runs' folders.
        results: folder that keeps the records.
        replace: whether kept records of runs that are not in `outputs` may be dropped.

    Returns:
        The file written, <results>/records/<experiment>.jsonl.

    Raises:
        RecordError: as `finished_records`; or kept records would be dropped without `replace`.
    """
    records = finished_records(outputs, experiment)
    if not replace and missing_records(results, experiment) is None:
        found = {(record.run_id, record.seed) for record in records}
        kept = {(record.run_id, record.seed) for record in read_records(results, experiment)}
        if dropped := len(kept - found):
            raise RecordError(
                f"{records_path(results, experiment)}: {dropped} of {len(kept)} kept runs are not in "
                f"{outputs / experiment}; finish these runs, or give --replace to drop their records"
            )
    for record in records:
        record.config.pop("paths", None)
        record.config["data"].pop("folder", None)
    path = records_path(results, experiment)
    write_atomically(path, "".join(f"{record.to_json()}\n" for record in records))
    return path


def _read_all(texts: Iterable[tuple[str, str]], experiment: str) -> list[Record]:
    records = []
    places: dict[tuple[str, int], str] = {}
    for place, text in texts:
        record = read_record(text, place)
        if record.experiment != experiment:
            raise RecordError(
                f"{place}: experiment={record.experiment!r}, allowed is {experiment!r}; remove this record"
            )
        run = record.run_id, record.seed
        if run in places:
            raise RecordError(
                f"{place}: run_id={run[0]} with seed={run[1]} is also recorded in {places[run]}; remove one of the two"
            )
        places[run] = place
        records.append(record)
    return records


def _order(record: Record) -> tuple[str, float, float, int, str]:
    activation = record.config["activation"]
    q, r = (activation.get(key) or 0.0 for key in ("q", "r"))
    return activation["name"], q, r, record.seed, record.run_id
