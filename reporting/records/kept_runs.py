"""The kept runs of all declared tables, for tables and figures."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Self

from experiments.record import Record, RecordError
from reporting.look.palette import TRAINING_SETS
from reporting.records.collected_records import missing_records, read_records, records_path
from reporting.records.declaration import SETTINGS, Declaration, Numbers, TrainingSets, load_declaration, load_numbers
from reporting.records.groups import Group, style_groups
from reporting.records.runs import Runs
from reporting.records.selection import Selection, refuse_missing_seeds, refuse_mixed_code, select_runs

FITS = {"accuracy on train": "train/accuracy", "macro-F1 on train": "train/macro_f1"}  # columns of the curves


class LeftOut(Exception):
    """One figure cannot be drawn, for the reason in the message; other figures are drawn."""


class ShownPanel(NamedTuple):
    """A declared panel with its runs."""

    title: str
    runs: list[Group]
    paths: list[Group]  # the configurations whose learned (q, r) it shows in the plane
    epoch: int | None = None  # at which runs are compared; None for each run's reported epoch

    def title_with_seeds(self) -> str:
        """The title and the number of seeds of a configuration, from the smallest to the largest number."""
        return f"{self.title}, {count_seeds(self.runs)}"


def count_seeds(groups: Iterable[Group]) -> str:
    """The number of seeds of a configuration, such as "5 seeds", from the smallest to the largest number."""
    counts = {len(group.runs) for group in groups} or {0}
    fewest, most = min(counts), max(counts)
    return f"{most if fewest == most else f'{fewest} to {most}'} seed{'' if most == 1 else 's'}"


@dataclass(frozen=True)
class KeptRuns:
    """The kept runs of all declared tables."""

    results: Path  # folder that holds records/ and studies/
    settings: Path  # folder that holds tables.yaml and published/
    declaration: Declaration
    records: dict[str, list[Record]]  # by experiment
    selections: dict[str, Selection]  # the runs of each table whose experiment has records
    missing: dict[str, str]  # for each experiment without records, how to make them

    @classmethod
    def load(
        cls,
        results: Path,
        settings: Path = SETTINGS,
        *,
        allow_missing_seeds: bool = False,
        allow_mixed_code: bool = False,
    ) -> Self:
        """Read the declaration and the kept records, and pick the runs of every table.

        Raises:
            TableError: for a wrong declaration, or records that are ambiguous; unless allowed, for missing seeds, and
                for records of different code or of uncommitted changes.
            RecordError: for records that cannot be read, or if no experiment has any.
        """
        declaration = load_declaration(settings)
        experiments = dict.fromkeys(table.experiment for table in declaration.tables.values())
        missing = {name: text for name in experiments if (text := missing_records(results, name))}
        kept = {name: read_records(results, name) for name in experiments if name not in missing}
        if not kept:
            raise RecordError(
                f"{results / 'records'}: there are no records of {', '.join(experiments)}; run an experiment, then "
                f"`python -m reporting collect EXPERIMENT --results {results}`"
            )
        selections = {
            name: select_runs(table, kept[table.experiment], str(records_path(results, table.experiment)))
            for name, table in declaration.tables.items()
            if table.experiment in kept
        }
        if not allow_missing_seeds:
            refuse_missing_seeds(selections)
        if not allow_mixed_code:
            for experiment in kept:
                own = [one for one in selections.values() if one.table.experiment == experiment]
                refuse_mixed_code([record for selection in own for record in selection.records()])
        return cls(results, settings, declaration, kept, selections, missing)

    def of_table(self, table: str) -> list[Group]:
        """The rows of a table that have runs, in the order of the palette.

        Raises:
            LeftOut: if no such table is declared, or its experiment has no records.
        """
        if table not in self.declaration.tables:
            raise LeftOut(f"{self.settings / 'tables.yaml'}: no table {table!r} is declared")
        if table not in self.selections:
            raise LeftOut(self.missing[self.declaration.tables[table].experiment])
        (groups,) = style_groups([self._labelled(table)])
        return groups

    @cached_property
    def numbers(self) -> dict[str, Numbers]:
        """The papers' numbers, by table."""
        return load_numbers(self.settings, self.declaration)

    @cached_property
    def panels(self) -> list[ShownPanel]:
        """The declared panels that have runs; each configuration has one look. Raises LeftOut if there are none."""
        declared = [p for p in self.declaration.figures.panels if {p.runs, p.paths} <= set(self.selections)]
        if not declared:
            raise LeftOut("no panel has records")
        runs = style_groups([self._labelled(panel.runs) for panel in declared])
        paths = style_groups([self._labelled(panel.paths) for panel in declared])
        return [
            ShownPanel(panel.title, shown, learned, self.selections[panel.runs].table.epoch)
            for panel, shown, learned in zip(declared, runs, paths, strict=True)
        ]

    @cached_property
    def training_sets(self) -> list[tuple[TrainingSets, list[Group]]]:
        """The declared rows of Figure 2 that have records, each with its runs."""
        rows = []
        for sets in self.declaration.figures.figure2:
            runs = {
                name: self.selections[one.table].rows[one.row]
                for name, one in sets.sets.items()
                if one.table in self.selections
            }
            groups = [Group(name, own, TRAINING_SETS[name]) for name, own in runs.items() if own]
            if groups:
                rows.append((sets, groups))
        return rows

    def _labelled(self, table: str) -> dict[str, Runs]:
        selection = self.selections[table]
        labels = selection.table.labels()
        return {labels[row]: runs for row, runs in selection.rows.items() if runs}
