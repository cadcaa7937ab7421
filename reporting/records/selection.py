"""Selects the records for each row of a table, and finds records that must not be in one table."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from experiments.record import Record
from reporting.look.palette import label
from reporting.records.declaration import Table, TableError
from reporting.records.runs import Runs


@dataclass(frozen=True)
class Selection:
    """A table with its runs."""

    table: Table
    rows: dict[str, Runs]
    baseline: Runs  # from which the other runs' differences are computed
    missing: list[str]  # the declared runs that have no record, in words

    def records(self) -> Iterator[Record]:
        """All records of the table."""
        for runs in (self.baseline, *self.rows.values()):
            yield from runs.records


def select_runs(table: Table, records: Iterable[Record], place: str) -> Selection:
    """Pick the runs of a table from all records of its experiment, which are kept in `place`.

    Records with other seeds than a row must have are left out.

    Raises:
        TableError: if a row selects runs of several configurations, or the rows were trained on different data.
    """
    pool = [record for record in records if record.seed in table.seeds and _has(record.config, table.where)]
    rows = {
        name: _of_one_configuration(records_of_row(table, name, pool, table.seeds_of(name)), place, row.select)
        for name, row in table.rows.items()
    }
    baseline = Runs()
    wanted = [(text, table.seeds_of(name), rows[name]) for name, text in table.labels().items()]
    if table.baseline is not None:
        chosen = [record for record in pool if _has(record.config["activation"], table.baseline)]
        baseline = _of_one_configuration(chosen, place, table.baseline)
        wanted.insert(0, (label(table.baseline), table.seeds, baseline))
    missing: dict[str, None] = {}  # the keys are a set that keeps its order: the baseline may be a row, too
    for text, seeds, runs in wanted:
        there = {record.seed for record in runs.records}
        if absent := [str(seed) for seed in seeds if seed not in there]:
            missing[f"{text}, seed {', '.join(absent)}"] = None
    selection = Selection(table, rows, baseline, [*missing])
    data = {record.data["content_hash"] for record in selection.records()}
    if len(data) > 1:
        raise TableError(
            f"{place}: the runs of {table.title!r} were trained on different data, data.content_hash "
            f"{', '.join(sorted(data))}; repeat them on the same data"
        )
    return selection


def refuse_missing_seeds(selections: Mapping[str, Selection]) -> None:
    """Raise a TableError if declared runs have no record; the message names these runs."""
    missing = [
        f"{name}: {runs}"
        for name, selection in selections.items()
        for runs in selection.missing
        if not selection.table.optional
    ]
    if missing:
        raise TableError(
            f"these runs have no record: {'; '.join(missing)}; run them and collect them with "
            "`python -m reporting collect`, or pass --allow-missing-seeds"
        )


def refuse_mixed_code(records: list[Record]) -> None:
    """Raise a TableError if the runs' code differs or was not committed; names the runs and the option."""
    if not of_one_code(records) or any(record.code.dirty is not False for record in records):
        raise TableError(
            f"{records[0].experiment}: the runs are of different code, or of changes that were not committed; pass "
            "--allow-mixed-code (make tables ALLOW=--allow-mixed-code), and the notes below a table name each code, or "
            f"repeat runs with force=true from one clean commit: {list_runs_by_code(records)}"
        )


def of_one_code(records: Iterable[Record]) -> bool:
    """Whether the same code computed all runs: a file that two of them import is the same for both."""
    versions = {version for record in records for version in record.code.files.items()}
    return len(versions) == len({path for path, _ in versions})


def describe_code(record: Record) -> str:
    """The code of a run in words: its digest, its commit, and whether all of it was committed."""
    code = record.code
    # A tree with unknown state (null) cannot be trusted more than a dirty tree.
    state = "clean" if code.dirty is False else "dirty" if code.dirty else "state unknown"
    return f"digest {code.digest[:12]}, commit {str(code.commit)[:12]}, {state}"


def list_runs_by_code(records: Iterable[Record]) -> str:
    """The code of most runs in words, then each other code with the runs that it computed."""
    runs_of: dict[str, set[str]] = {}
    for record in records:
        run = f"{label(record.config['activation'], record.config['data'])} seed {record.seed}"
        runs_of.setdefault(describe_code(record), set()).add(run)
    most, *others = sorted(runs_of, key=lambda code: (-len(runs_of[code]), code))
    named = [f"{code}: {', '.join(sorted(runs_of[code]))}" for code in others]
    return "; ".join([f"{most}: {len(runs_of[most])} runs", *named])


def records_of_row(
    table: Table, name: str, records: Iterable[Record], seeds: Collection[int] | None = None
) -> list[Record]:
    """The records with the settings of a table's row; of these seeds, or of all."""
    row = table.rows[name]
    return [
        record
        for record in records
        if (seeds is None or record.seed in seeds)
        and _has(record.config, table.where)
        and _has(record.config, row.where)
        and _has(record.config["activation"], row.select)
    ]


def _of_one_configuration(records: list[Record], place: str, activation: Mapping[str, Any]) -> Runs:
    run_ids = sorted({record.run_id for record in records})
    if len(run_ids) > 1:
        raise TableError(
            f"{place}: the row {dict(activation)} takes runs of several configurations, run_id "
            f"{', '.join(run_ids)}; add to its `select`, or to the table's `where`, in tables.yaml what tells "
            f"them apart, or remove the records that do not belong"
        )
    return Runs(tuple(records))


def _has(config: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        return isinstance(config, Mapping) and all(_has(config.get(key), wanted[key]) for key in wanted)
    return bool(config == wanted)
