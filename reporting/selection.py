"""Which records fill which row of a table, and which records no table should be built from."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reporting.declaration import Table, TableError
from reporting.palette import label
from reporting.records import Record, read_records, records_path

Runs = dict[int, Record]  # the runs of a row, by seed


@dataclass(frozen=True)
class Selection:
    """The runs of a table.

    Attributes:
        rows: runs of each row.
        baseline: runs that differences are taken to.
        missing: the declared runs that have no record, in words.
    """

    rows: dict[str, Runs]
    baseline: Runs
    missing: list[str]

    def records(self) -> Iterator[Record]:
        """All records of the table."""
        for runs in (self.baseline, *self.rows.values()):
            yield from runs.values()


def select_runs(table: Table, results: Path) -> Selection:
    """Pick the runs of a table out of the kept records.

    Args:
        table: the table; records with other seeds than it declares are left out.
        results: folder that holds records/.

    Returns:
        The runs of its rows.

    Raises:
        TableError: where a row takes runs of several configurations, or the rows were trained on
            different splits.
        RecordError: for records that cannot be read.
    """
    place = str(records_path(results, table.experiment))
    pool = [r for r in read_records(results, table.experiment) if r["seed"] in table.seeds]
    rows = {name: _matching(row.select, pool, place) for name, row in table.rows.items()}
    baseline = _matching(table.baseline, pool, place)
    selects = [table.baseline, *(row.select for row in table.rows.values())]
    missing = _missing(table.seeds, zip(selects, [baseline, *rows.values()], strict=True))
    selection = Selection(rows, baseline, missing)
    splits = {record["data"]["split_hash"] for record in selection.records()}
    if len(splits) > 1:
        raise TableError(
            f"{place}: the runs of {table.title!r} were trained on different splits, split_hash "
            f"{', '.join(sorted(splits))}; repeat them on one split"
        )
    return selection


def refuse_missing_seeds(selections: Mapping[str, Selection]) -> None:
    """Raise a TableError that names the declared runs without a record, if there are any."""
    lines = [f"  {name}: {runs}" for name in selections for runs in selections[name].missing]
    if lines:
        raise TableError(
            "these runs have no record:\n" + "\n".join(lines) + "\nrun them and collect them with "
            "`python -m reporting.records`, or pass --allow-missing-seeds"
        )


def refuse_mixed_code(selections: Mapping[str, Selection]) -> None:
    """Raise a TableError that names the runs of each code, if it differs or was not committed."""
    runs_of: dict[str, set[str]] = {}
    digests, committed = set(), True
    for selection in selections.values():
        for record in selection.records():
            run = f"{label(record['config']['activation'])} seed {record['seed']}"
            runs_of.setdefault(describe_code(record), set()).add(run)
            digests.add(record["code"]["digest"])
            committed &= record["code"]["dirty"] is False
    if len(digests) > 1 or not committed:
        lines = [f"  {code}: {', '.join(sorted(runs_of[code]))}" for code in sorted(runs_of)]
        raise TableError(
            "these runs are of different code, or of changes that were not committed:\n"
            + "\n".join(lines)
            + "\nrepeat them with force=true from one clean commit, or pass --allow-mixed-code"
        )


def describe_code(record: Record) -> str:
    """The code of a record in words: its digest, its commit and whether the tree was clean."""
    code = record["code"]
    # A tree whose state is unknown (null) is no more to be trusted than a dirty one.
    state = "clean" if code["dirty"] is False else "dirty" if code["dirty"] else "state unknown"
    return f"digest {code['digest'][:12]}, commit {str(code['commit'])[:12]}, {state}"


def _matching(select: Mapping[str, Any], pool: Iterable[Record], place: str) -> Runs:
    chosen = [
        record for record in pool if all(record["config"]["activation"].get(key) == select[key] for key in select)
    ]
    run_ids = sorted({record["run_id"] for record in chosen})
    runs = {record["seed"]: record for record in chosen}
    if len(run_ids) > 1 or len(runs) < len(chosen):
        raise TableError(
            f"{place}: the row {dict(select)} takes runs of several configurations, run_id "
            f"{', '.join(run_ids)}; add to its `select` in tables.yaml what tells "
            f"them apart, or remove the records that do not belong"
        )
    return runs


def _missing(seeds: list[int], rows: Iterable[tuple[Mapping[str, Any], Runs]]) -> list[str]:
    absent = {label(select): [str(seed) for seed in seeds if seed not in runs] for select, runs in rows}
    return [f"{name}, seed {', '.join(missing)}" for name, missing in absent.items() if missing]
