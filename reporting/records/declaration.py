"""The declarations in conf/reporting/tables.yaml: tables to rebuild, claims to decide, and panels of the figures."""

import reprlib
from collections.abc import Iterable, Mapping
from functools import cache
from math import nan
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from experiments.identity import ROOT
from experiments.metric_catalogue import metric
from experiments.record import first_problem, out_of_range
from reporting.look.palette import TRAINING_SETS, label
from reporting.records.yaml_files import TableError, read_yaml

SETTINGS = ROOT / "conf" / "reporting"  # holds tables.yaml and published/
ORDERS = "orders"  # in place of a split, for numbers that belong to no split: learned (q, r), times
VERDICTS = "verdicts"  # the name of the files that decide the claims of all tables


class Cell(NamedTuple):
    """The number in a cell: a metric on a split after an epoch; None for the epoch that runs report."""

    split: str
    metric: str
    epoch: int | None = None


class Level(NamedTuple):
    """A number of the paper: a mean with its standard deviation, or the middle of a range and half its width."""

    mean: float
    std: float = nan  # NaN if the paper prints none
    half_width: float = 0.0  # 0 for a single number


Numbers = dict[str, dict[Cell, Level]]  # the paper's, by row


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


def _labelled(activation: dict[str, Any]) -> dict[str, Any]:
    """The values of `config.activation`, if a label can be made of them."""
    try:
        label(activation)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"Input should have a name and parameters that a label can show ({error})") from error
    return activation


Activation = Annotated[dict[str, Any], AfterValidator(_labelled)]
Seeds = Annotated[list[int], Field(min_length=1)]


class Columns(_Part):
    """Columns of a table that belong together: one for each metric and epoch, in a block of their own.

    `split` is "train", "dev", "test", or "orders" for numbers of no split, such as learned (q, r) and times; or the
    name of a data set of the paper that our runs do not measure.
    """

    split: str
    metrics: dict[str, str]  # titles of the metrics shown, by their names in the records
    epochs: list[int] = []  # empty for the epoch that runs report
    printed: bool = False  # whether the paper prints the columns
    measured: bool = True  # whether our runs measure them
    unit: str = "fraction"
    decimals: int = 3
    data: str | None = None  # the split's name for readers; None for the name in `split`
    beside: bool = False  # whether they belong to the block of the columns before them

    def titles(self) -> dict[Cell, str]:
        """Title of every column, by its cell."""
        return {
            Cell(self.split, metric, epoch): title if epoch is None else f"{title}, epoch {epoch}"
            for metric, title in self.metrics.items()
            for epoch in self.epochs or [None]
        }


class Row(_Part):
    """A row of a table: the records whose settings have the values under `select` and `where`."""

    select: Activation  # values of `config.activation`
    published: str | None = None  # the paper's name of the row; None where the paper has none
    where: dict[str, Any] = {}  # values of `config`
    label: str | None = None  # title of the row; None for the label of its activation
    seeds: Seeds | None = None  # those of the table's seeds that the row must have; None for all


class Claim(_Part):
    """A claim of the paper, decided for each of its rows."""

    text: str
    metric: str
    rows: list[str]
    against: list[str] = []  # rows whose mean the rows are compared with; empty for a claim about a level
    epoch: int | None = None  # None for the table's
    split: Literal["test", "train"] = "test"  # where the paper measures the number


class Table(_Part):
    """A table of the paper, or of ours where `published` is None."""

    title: str  # without the paper's number
    experiment: str  # whose records fill the table
    seeds: Seeds  # that every row must have, unless the row names some of them
    repeat: str  # command that repeats the experiment and the table
    columns: list[Columns]
    rows: dict[str, Row]
    baseline: Activation | None = None  # values of `config.activation` of its runs; None for no differences
    compared: str | None = None  # the metric whose difference to the baseline is shown, on the test split
    published: str | None = None  # the paper's name of the table; None where the paper has none
    claims: list[Claim] = []
    where: dict[str, Any] = {}  # values of `config` that pick the table's records
    epoch: int | None = None  # of the numbers; None for the epoch that each run reports
    paper: str | None = None  # file under published/ with the paper's numbers; None for the declaration's
    number: str | None = None  # the paper's, such as "Table 1"; None for a table of our own
    about: str | None = None  # facts that do not fit into the title; the first note
    optional: bool = False  # whether rows and seeds, or the whole experiment, may have no records

    def heading(self) -> str:
        """The paper's number of the table, if it has one, and the title."""
        return self.title if self.number is None else f"{self.number}. {self.title}"

    def labels(self) -> dict[str, str]:
        """Label of every row, by its name."""
        return {name: row.label or label(row.select) for name, row in self.rows.items()}

    def blocks(self) -> list[list[Columns]]:
        """The columns of every block."""
        blocks: list[list[Columns]] = []
        for columns in self.columns:
            if columns.beside and blocks:
                blocks[-1].append(columns)
            else:
                blocks.append([columns])
        return blocks

    def seeds_of(self, row: str) -> list[int]:
        """The seeds that a row must have."""
        return self.rows[row].seeds or self.seeds

    def metrics(self) -> dict[str, str]:
        """Title of every metric shown, in the order of the columns."""
        return {metric: title for columns in self.columns for metric, title in columns.metrics.items()}

    def printed(self) -> list[Cell]:
        """The cells that the paper prints."""
        return [cell for columns in self.columns if columns.printed for cell in columns.titles()]


class Panel(_Part):
    """A panel of the figures that show several experiments side by side."""

    title: str
    runs: str  # the table whose rows are drawn
    paths: str = Field(default_factory=lambda panel: panel["runs"])  # the table with the paths in the (q, r) plane


class LearnedRow(_Part):
    """The runs of a row with learned orders."""

    table: str
    row: str = "learned"


class TrainingSets(_Part):
    """A row of panels in Figure 2: one network, trained on sets with different class frequencies."""

    title: str
    sets: dict[str, LearnedRow]  # by the names of `reporting.look.palette.TRAINING_SETS`
    published: dict[str, LearnedRow] = {}  # rows whose published sparsity is drawn, by the names of sets


class Figures(_Part):
    """The declared content of the figures."""

    panels: list[Panel]
    figure2: list[TrainingSets] = []


class Question(_Part):
    """A question that readers ask, answered by one row of a claim."""

    text: str
    table: str | None = None  # None while our runs do not measure what the paper claims
    claim: str | None = None  # the text of the claim
    row: str | None = None
    number: str = ""  # what the row's number is
    reason: str  # in one line, without numbers


class Hypothesis(_Part):
    """A way in which a published number may have been made, and where our numbers under it stand."""

    name: str
    split: Literal["train"] | None = None  # of the table's own records; else a study has the numbers
    experiment: str | None = None  # of the tables that the study's numbers are for
    study: str | None = None  # its file results/studies/<study>.csv
    where: dict[str, Any] = {}  # values of the file's columns
    rows: dict[str, str] = {}  # by the table's row, the value of the column `contender`


class Nearness(_Part):
    """When a published number comes near ours under a hypothesis."""

    within: float  # published deviations
    sparsity_deviation: float  # stands for the deviation that the paper does not print
    hypotheses: list[Hypothesis]


class Declaration(_Part):
    """All of tables.yaml."""

    published: str  # file under published/ with the paper's numbers
    published_decimals: int = Field(ge=2)  # that the paper prints, of fractions
    published_runs: int = Field(gt=1)  # over which it gives means
    confidence: float = Field(gt=0, lt=1)  # of the intervals
    narrow: float = Field(gt=0)  # width below which an interval of a fraction shows that a number reproduces
    near: Nearness | None = None
    fits: list[float] = []  # levels of accuracy and macro-F1 on train at which training sets are compared
    equal_within: float = Field(default=0, ge=0)  # the largest difference of two such sparsities that is about equal
    tables: dict[str, Table]
    figures: Figures
    questions: list[Question] = []


def load_declaration(settings: Path = SETTINGS) -> Declaration:
    """Read and check <settings>/tables.yaml.

    Raises:
        RecordError: for a file that is missing.
        TableError: for an unknown or missing key, a value of the wrong type, two rows with one label,
            or a claim about a row, a metric or an epoch that is not declared.
    """
    path = settings / "tables.yaml"
    try:
        declaration = Declaration.model_validate(read_yaml(path))
    except ValidationError as error:
        raise TableError(f"{path}: {first_problem(error)}") from error
    for name, table in declaration.tables.items():
        _check_table(table, name, path)
    for question in declaration.questions:
        _check_question(question, declaration, f"{path}: question {question.text!r}")
    for panel in declaration.figures.panels:
        _check_names([panel.runs, panel.paths], declaration.tables, "table", f"{path}: panel {panel.title!r}")
    for sets in declaration.figures.figure2:
        for one in [*sets.sets.values(), *sets.published.values()]:
            _check_names([one.table], declaration.tables, "table", f"{path}: figure 2, {sets.title!r}")
            _check_names([one.row], declaration.tables[one.table].rows, "row", f"{path}: figure 2, {sets.title!r}")
        _check_names([*sets.sets, *sets.published], TRAINING_SETS, "training set", f"{path}: figure 2, {sets.title!r}")
    return declaration


def load_numbers(settings: Path, declaration: Declaration) -> dict[str, Numbers]:
    """Read the papers' numbers, by table, row and cell, from <settings>/published/.

    Raises:
        RecordError: for a file that is missing.
        TableError: for a table, row, metric or epoch that the file does not have.
    """
    read = cache(read_yaml)  # once for all tables
    tables: dict[str, Numbers] = {}
    for name, table in declaration.tables.items():
        tables[name] = {}
        if table.published is None:
            continue
        path = settings / "published" / f"{table.paper or declaration.published}.yaml"
        rows = _named(read(path), table.published, "table", f"{path}, asked for {name}")
        for row, spec in table.rows.items():
            if spec.published is not None:
                place = f"{path}, asked for row {row!r} of {name}"
                numbers = _named(rows, spec.published, "row", place)
                tables[name][row] = {cell: _level(numbers, cell, place) for cell in table.printed()}
    return tables


def _level(numbers: Mapping[str, Any], cell: Cell, place: str) -> Level:
    name = cell.metric if cell.split == "test" else f"{cell.split}_{cell.metric}"
    printed, place = _named(numbers, name, "metric", place), f"{place}, {name}"
    if cell.epoch is not None:
        printed = _named(printed, cell.epoch, "epoch", place)
    match printed:
        case {"low": int() | float() as low, "high": int() | float() as high} if low <= high:
            level = Level((low + high) / 2, half_width=(high - low) / 2)
        case [int() | float() as mean, int() | float() as std] if std >= 0:
            level = Level(mean, std)
        case (int() | float() as mean) | [int() | float() as mean, None]:
            level = Level(mean)
        case _:
            raise TableError(
                f"{place}: {reprlib.repr(printed)} is not allowed; it must be a number, [mean, deviation >= 0], or a "
                "range from low to high"
            )
    for end in (level.mean - level.half_width, level.mean + level.half_width):
        if problem := out_of_range({f"{cell.split}/{cell.metric}": end}):
            raise TableError(f"{place}: {problem}")
    return level


def _named(known: Any, name: str | int, kind: str, place: str) -> Any:
    """The value under this name in a mapping."""
    if not isinstance(known, dict):
        raise TableError(f"{place}: {reprlib.repr(known)} is not allowed; it must have the name of the {kind}")
    _check_names([name], known, kind, place)
    return known[name]


def _check_table(table: Table, name: str, path: Path) -> None:
    labels = list(table.labels().values())
    if doubled := {text for text in labels if labels.count(text) > 1}:
        raise TableError(f"{path}: {name} has several rows for {sorted(doubled)}; keep one")
    if table.compared is not None:
        if table.baseline is None:
            raise TableError(f"{path}: {name} compares {table.compared!r} with no baseline; give one")
        cells = [cell for columns in table.columns for cell in columns.titles() if columns.split == "test"]
        known = [cell.metric for cell in cells if cell.epoch is None]
        _check_names([table.compared], known, "metric", f"{path}: {name}, compared")
        _check_fraction(table.compared, f"{path}: {name}, compared")
    for claim in table.claims:
        place = f"{path}: claim {claim.text!r} of {name}"
        _check_names(claim.rows + claim.against, table.rows, "row", place)
        of_split = [cell for cell in table.printed() if cell.split == claim.split]
        _check_names([claim.metric], [cell.metric for cell in of_split], "metric", place)
        _check_fraction(claim.metric, place)
        _check_names([claim.epoch], [cell.epoch for cell in of_split if cell.metric == claim.metric], "epoch", place)
        for row in claim.rows + claim.against:
            if table.published is None or table.rows[row].published is None:
                raise TableError(f"{place}: row {row!r} has no published numbers to claim")
    for row in table.rows:
        _check_names(table.seeds_of(row), table.seeds, "seed", f"{path}: row {row!r} of {name}")


def _check_fraction(name: str, place: str) -> None:
    """Verdicts and differences are in fractions and percentage points."""
    if (metric(name).least, metric(name).largest) != (0, 1):
        raise TableError(f"{place}: {name!r} is not allowed; it must be a metric from 0 to 1")


def _check_question(question: Question, declaration: Declaration, place: str) -> None:
    if question.table is None:
        return
    _check_names([question.table], declaration.tables, "table", place)
    claims = {claim.text: claim for claim in declaration.tables[question.table].claims}
    _check_names([question.claim], claims, "claim", place)
    _check_names([question.row], claims[str(question.claim)].rows, "row", place)


def _check_names(names: Iterable[Any], known: Iterable[Any], kind: str, place: str) -> None:
    known = list(known)
    for name in names:
        if name not in known:
            raise TableError(f"{place}: there is no {kind} {name!r}; there are {sorted(known, key=str)}")
