"""Which records fill which row of a table, and which records no table should be built from."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reporting.declaration import Declaration, Table, TableError
from reporting.palette import label
from reporting.records import Record, RecordError, missing_records, read_records, records_path
from reporting.statistics import last_epoch

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


def select_all(
    declaration: Declaration, results: Path, *, allow_missing_seeds: bool, allow_mixed_code: bool
) -> dict[str, Selection]:
    """Pick the runs of every declared table whose experiment has records.

    Args:
        declaration: the tables declared.
        results: folder that holds records/.
        allow_missing_seeds: accept that declared seeds are missing.
        allow_mixed_code: accept records of different code or of uncommitted changes.

    Returns:
        The runs of the tables by their names.

    Raises:
        TableError: for records that are missing, mixed or ambiguous.
        RecordError: for records that cannot be read, or where no experiment has any.
    """
    absent = {table.experiment: missing_records(results, table.experiment) for table in declaration.tables.values()}
    if all(absent.values()):
        raise RecordError("\n".join(filter(None, absent.values())))
    selections = {
        name: select_runs(table, results)
        for name, table in declaration.tables.items()
        if absent[table.experiment] is None
    }
    if not allow_missing_seeds:
        refuse_missing_seeds(selections)
    if not allow_mixed_code:
        for experiment in absent:
            of_experiment = [selections[n] for n in selections if declaration.tables[n].experiment == experiment]
            refuse_mixed_code(of_experiment)
    return selections


def left_out(declaration: Declaration, results: Path) -> list[tuple[list[str], str]]:
    """The declared tables without records: their names and the command that makes them, for each experiment."""
    experiments = dict.fromkeys(table.experiment for table in declaration.tables.values())
    return [
        ([name for name, table in declaration.tables.items() if table.experiment == experiment], message)
        for experiment in experiments
        if (message := missing_records(results, experiment))
    ]


def final_epoch(table: Table, selection: Selection) -> int | None:
    """The epoch that a table's last numbers are of.

    Args:
        table: the table.
        selection: its runs.

    Returns:
        The table's epoch or, until all of its runs have reached that, the last that all have, so that rows are
        compared at one epoch; None where the table names no epoch: the one each run reports.
    """
    reached = min(map(last_epoch, selection.records()), default=None)
    return table.epoch if None in (table.epoch, reached) else min(table.epoch, reached)


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
    pool = [
        record
        for record in read_records(results, table.experiment)
        if record["seed"] in table.seeds and _has(record["config"], table.where)
    ]
    rows = {
        name: _matching(row.select, [record for record in pool if _has(record["config"], row.where)], place)
        for name, row in table.rows.items()
    }
    baseline: Runs = {}
    named = dict(zip(table.labels().values(), rows.values(), strict=True))
    if table.baseline is not None:
        baseline = _matching(table.baseline, pool, place)
        named = {label(table.baseline): baseline} | named
    selection = Selection(rows, baseline, _missing(table.seeds, named.items()))
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


def refuse_mixed_code(selections: Iterable[Selection]) -> None:
    """Raise a TableError that names the runs of each code, if it differs or was not committed."""
    runs_of: dict[str, set[str]] = {}
    digests, committed = set(), True
    for selection in selections:
        for record in selection.records():
            config = record["config"]
            run = f"{label(config['activation'], config['data'])} seed {record['seed']}"
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


def _matching(activation: Mapping[str, Any], pool: Iterable[Record], place: str) -> Runs:
    chosen = [record for record in pool if _has(record["config"]["activation"], activation)]
    run_ids = sorted({record["run_id"] for record in chosen})
    runs = {record["seed"]: record for record in chosen}
    if len(run_ids) > 1 or len(runs) < len(chosen):
        raise TableError(
            f"{place}: the row {dict(activation)} takes runs of several configurations, run_id "
            f"{', '.join(run_ids)}; add to its `select`, or to the table's `where`, in tables.yaml what tells "
            f"them apart, or remove the records that do not belong"
        )
    return runs


def _has(config: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        return isinstance(config, Mapping) and all(_has(config.get(key), wanted[key]) for key in wanted)
    return bool(config == wanted)


def _missing(seeds: list[int], rows: Iterable[tuple[str, Runs]]) -> list[str]:
    absent = {name: [str(seed) for seed in seeds if seed not in runs] for name, runs in rows}
    return [f"{name}, seed {', '.join(missing)}" for name, missing in absent.items() if missing]
