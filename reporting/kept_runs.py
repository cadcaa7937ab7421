"""The kept runs as figures show them: those of a table, and those of the panels declared in tables.yaml."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from reporting.declaration import Declaration, load_declaration, load_regimes
from reporting.groups import Group, style_groups
from reporting.records import missing_records
from reporting.runs import Runs
from reporting.selection import Selection, final_epoch, select_all


class LeftOut(Exception):
    """Why a figure cannot be drawn; the other figures can."""


class ShownPanel(NamedTuple):
    """A declared panel with its runs.

    Attributes:
        title: its title.
        runs: the configurations it shows.
        paths: the configurations whose learned (q, r) it shows in the plane.
        epoch: the epoch at which runs are compared; None for the one that each run reports.
        levels: what the paper's Figure 2 shows of it, by name; None where the figure does not show it.
    """

    title: str
    runs: list[Group]
    paths: list[Group]
    epoch: int | None = None
    levels: dict[str, Any] | None = None

    def title_with_seeds(self) -> str:
        """The title and the number of seeds."""
        seeds = max((len(group.runs) for group in self.runs), default=0)
        return f"{self.title}, {seeds} seed{'' if seeds == 1 else 's'}"


@dataclass(frozen=True)
class KeptRuns:
    """The kept runs of all declared tables.

    Attributes:
        results: folder that holds tables.yaml, published/ and records/.
        declaration: the tables and panels declared.
        selections: the runs of each table that has any.
        regimes: the levels that the paper's Figure 2 shows, by regime.
    """

    results: Path
    declaration: Declaration
    selections: dict[str, Selection]
    regimes: dict[str, dict[str, Any]]

    @classmethod
    def load(cls, results: Path, *, allow_missing_seeds: bool = False, allow_mixed_code: bool = False) -> "KeptRuns":
        """Read and select the kept runs; arguments and errors as those of `rebuild_figures`."""
        declaration = load_declaration(results)
        regimes = load_regimes(results, declaration)
        selections = select_all(
            declaration, results, allow_missing_seeds=allow_missing_seeds, allow_mixed_code=allow_mixed_code
        )
        return cls(results, declaration, selections, regimes)

    def of_table(self, table: str) -> list[Group]:
        """The rows of a table that have runs.

        Args:
            table: name of the table in tables.yaml.

        Returns:
            A group for each row, in the order of the palette.

        Raises:
            LeftOut: where no such table is declared, or its experiment has no records.
        """
        if table not in self.declaration.tables:
            raise LeftOut(f"{self.results / 'tables.yaml'}: no table {table!r} is declared")
        if reason := self._missing(table):
            raise LeftOut(reason)
        (groups,) = style_groups([self._labelled(table)])
        return groups

    @cached_property
    def panels(self) -> list[ShownPanel]:
        """The declared panels that have runs; one configuration looks the same in all of them. LeftOut for none."""
        missing = dict(self.missing_panels())
        declared = [panel for panel in self.declaration.figures.panels if panel.title not in missing]
        if not declared:
            raise LeftOut("no panel has records")
        runs = style_groups([self._labelled(panel.runs) for panel in declared])
        paths = style_groups([self._labelled(panel.paths) for panel in declared])
        return [
            ShownPanel(
                panel.title,
                *groups,
                final_epoch(self.declaration.tables[panel.runs], self.selections[panel.runs]),
                None if panel.regime is None else self.regimes[panel.regime],
            )
            for panel, *groups in zip(declared, runs, paths, strict=True)
        ]

    def missing_panels(self) -> list[tuple[str, str]]:
        """Title of each declared panel without records, and what makes them."""
        return [
            (panel.title, reason)
            for panel in self.declaration.figures.panels
            if (reason := self._missing(panel.runs) or self._missing(panel.paths))
        ]

    def _missing(self, table: str) -> str | None:
        return missing_records(self.results, self.declaration.tables[table].experiment)

    def _labelled(self, table: str) -> dict[str, Runs]:
        labels = self.declaration.tables[table].labels()
        return {labels[row]: runs for row, runs in self.selections[table].rows.items() if runs}
