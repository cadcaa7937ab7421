"""A table of the paper in its narrow form: what it prints, what we measure, and the difference, for one metric."""

from pathlib import Path

import pandas as pd

from reporting.declaration import load_declaration
from reporting.number_formats import NOTHING, number
from reporting.yaml_files import TableError


def compare(root: Path, to_root: str, name: str, metric: str, epoch: str | None = None) -> str:
    """A line for each row of a table: theirs, ours and the difference, on the paper's split.

    Args:
        root: the repository.
        to_root: way from the page to the repository, for links.
        name: name of the table in results/tables.yaml.
        metric: name of the metric in the records.
        epoch: the epoch, where the table has several.

    Raises:
        TableError: where the table does not show that metric.
    """
    table = load_declaration(root / "results").tables[name]
    numbers = pd.read_csv(root / "results" / "tables" / f"{name}.csv")
    numbers = numbers[(numbers["kind"] == "level") & (numbers["metric"] == metric)]
    if epoch is not None:
        numbers = numbers[numbers["epoch"] == int(epoch)]
    if numbers.empty:
        raise TableError(f"{name} shows no {metric}{f' of epoch {epoch}' if epoch else ''}")
    theirs, ours = (numbers[numbers["source"] == source] for source in ("published", "ours"))
    split = "test" if "test" in set(ours["split"]) else ours["split"].iloc[0]
    ours = ours[ours["split"] == split].set_index("row")["mean"]
    printed = {place: of.set_index("row")["mean"] for place, of in theirs.groupby("split", sort=False)}
    decimals = {one.split: one.decimals for one in table.columns if metric in one.metrics}
    lines = []
    for row in table.labels().values():
        line = {"activation": row}
        for place, means in printed.items():
            title = "theirs" if place == split else f"theirs, {place}"
            line[title] = _cell(means.get(row), decimals[place])
        line["ours"] = _cell(ours.get(row), decimals[split])
        if split in printed:
            line["difference"] = _difference(printed[split].get(row), ours.get(row), decimals[split])
        lines.append(line)
    title = f"{table.metrics()[metric]} on {split}" + (f" after epoch {epoch}" if epoch else "")
    text = pd.DataFrame(lines).to_markdown(index=False, disable_numparse=True)
    source = table.number or table.title
    return f"{title[0].upper()}{title[1:]}, from [{source}]({to_root}results/tables/{name}.md):\n\n{text}"


def _cell(value: float | None, decimals: int) -> str:
    return NOTHING if value is None or pd.isna(value) else number(value, decimals)


def _difference(theirs: float | None, ours: float | None, decimals: int) -> str:
    if theirs is None or ours is None or pd.isna(theirs) or pd.isna(ours):
        return NOTHING
    return number(ours - theirs, decimals, "+")
