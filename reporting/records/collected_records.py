"""The records of an experiment: collected from its finished runs, and kept as one line for each run.

What one record must be: `experiments/record.py`.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from experiments.files import write_atomically
from experiments.record import Record, RecordError, read_record, read_text
from experiments.run_folder import RECORD, finished_run_aside


def records_path(results: Path, experiment: str) -> Path:
    """The file with the kept records of an experiment, below the folder `results`."""
    return results / "records" / f"{experiment}.jsonl"


def missing_records(results: Path, experiment: str) -> str | None:
    """How to make the records of an experiment that has no kept records; None if it has some."""
    path = records_path(results, experiment)
    how = (
        f"{path}: there are no records of {experiment!r}; run the experiment, then "
        f"`python -m reporting collect {experiment} --results {results}`"
    )
    return None if path.exists() else how


def read_records(results: Path, experiment: str) -> list[Record]:
    """Read the kept records of an experiment, in the order of the file <results>/records/<experiment>.jsonl.

    Raises:
        RecordError: for a file that is missing or cannot be read, naming the command that makes it; for a malformed
            record, naming file, line and key; for a run recorded twice.
    """
    if missing := missing_records(results, experiment):
        raise RecordError(missing)
    path = records_path(results, experiment)
    remedy = f"restore it, or remove it and collect it again: `python -m reporting collect {experiment}`"
    lines = read_text(path, remedy).split("\n")  # splitlines would also split at characters inside JSON strings
    records = _read_all(((f"{path}, line {n}", line) for n, line in enumerate(lines, 1) if line.strip()), experiment)
    if not records:
        raise RecordError(f"{path}: the file is empty; {remedy}")
    return records


def finished_records(outputs: Path, experiment: str) -> dict[Path, Record]:
    """Each file <outputs>/<experiment>/**/record.json with its record, sorted by activation, q, r and seed.

    Raises:
        RecordError: if no run has finished, a record is malformed, or a run is recorded twice.
    """
    folder = outputs / experiment
    files = sorted(folder.rglob(RECORD))
    replaced = {finished_run_aside(file.parent) for file in files}  # a new run has taken the place of each
    files = [file for file in files if file.parent not in replaced]
    records = _read_all(((str(path), read_text(path, "repeat the run with force=true")) for path in files), experiment)
    if not records:
        raise RecordError(
            f"{folder}: no finished run of {experiment!r} (no record.json below it); run it with "
            f"`python run.py experiment={experiment}`, or name another folder with --outputs"
        )
    return dict(sorted(zip(files, records, strict=True), key=lambda one: _order(one[1])))


def collect(experiments: Sequence[str], outputs: Path, results: Path) -> list[Path]:
    """Keep the records of the finished runs in `outputs`, in place of earlier records of the same runs.

    The records of other runs stay. The machine's folders are removed from the settings, because they do not change the
    result. If one experiment has an error, no file is replaced.

    Returns the files written, <results>/records/<experiment>.jsonl.

    Raises:
        RecordError: as `finished_records`, and as `read_records` for a file that is there.
    """
    texts = {}
    for experiment in experiments:
        records = [*finished_records(outputs, experiment).values()]
        for record in records:
            record.config.pop("paths", None)
            record.config["data"].pop("folder", None)
        path = records_path(results, experiment)
        if path.exists():
            found = {_run(record) for record in records}
            records += [record for record in read_records(results, experiment) if _run(record) not in found]
        texts[path] = "".join(f"{record.to_json()}\n" for record in sorted(records, key=_order))
    for path, text in texts.items():
        write_atomically(path, text)
    return [*texts]


def _run(record: Record) -> tuple[str, int]:
    return record.run_id, record.seed


def _read_all(texts: Iterable[tuple[str, str]], experiment: str) -> list[Record]:
    records = []
    places: dict[tuple[str, int], str] = {}
    for place, text in texts:
        record = read_record(text, place)
        if record.experiment != experiment:
            raise RecordError(
                f"{place}: experiment={record.experiment!r}, allowed is {experiment!r}; remove this record"
            )
        run = _run(record)
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
