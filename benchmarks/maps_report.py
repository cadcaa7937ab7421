"""The table and the figure of the maps' times, from the CSV alone."""

from pathlib import Path

import pandas as pd
from matplotlib import colormaps
from matplotlib.figure import Figure
from rich.console import Console
from rich.markdown import Markdown

from benchmarks.contenders import BASELINES, FIXED, LEARNED
from experiments.files import write_atomically
from reporting.drawing import add_legend, save

_CASE = ["kind", "rows", "classes", "regime", "dtype", "threads"]
_LINES = {"torch": "-", "sharmix": "-", "entmax": "--"}
_BISECT, _SORT = "entmax_bisect (package)", "entmax15 (package)"
_FASTER_THAN = {_BISECT: 100, _SORT: 20}  # goals from 1,000 classes on, in times


def report(path: Path) -> None:
    """Write the table (Markdown) and the figure (PNG and SVG) beside the CSV, and print the table."""
    data = pd.read_csv(path)
    text = "\n\n".join([_heading(data), *(f"## {title}\n\n{table}" for title, table in _tables(data).items())]) + "\n"
    write_atomically(path.with_suffix(".md"), text)
    Console().print(Markdown(text))
    if (data["part"] == "curve").any():
        save(_figure(data[data["part"] == "curve"]), path.with_suffix(".png"))
    Console().print(f"Written: {path} and its table and figure beside it")


def _heading(data: pd.DataFrame) -> str:
    first = data.iloc[0]
    dirty = ", with uncommitted changes" if first["dirty"] else ""
    return (
        f"# Time of forward and backward, relative to softmax and to cross-entropy\n\n"
        f"Medians of rounds in which every contender takes its turn (lowest–highest); freed memory is kept, as in a "
        f"training run. {first['processor']}, "
        f"{first['cores']} cores, {first['vectors']}; device {first['device']}, backend {first['backend']}; torch "
        f"{first['torch']}, entmax {first['entmax']}; commit {str(first['commit'])[:12]}{dirty}. Repeat: `make bench`."
    )


def _tables(data: pd.DataFrame) -> dict[str, str]:
    cells, linear = data[data["part"] == "cell"], data[data["part"] == "linear"]
    tables = {
        f"{kind.capitalize()} against {baseline}": _ratios(cells[cells["kind"] == kind])
        for kind, baseline in BASELINES.items()
    }
    tables["Learned orders against fixed"] = _learned(cells)
    tables["Against the entmax package, from 1,000 classes on"] = _speedups(cells)
    tables["Two threads against one"] = _threads(cells)
    if len(linear):
        tables["An output layer with its loss"] = _linear(linear)
    return {title: table.to_markdown(index=False) for title, table in tables.items() if len(table)}


def _ratios(cells: pd.DataFrame) -> pd.DataFrame:
    goal = cells["goal"].map("≤ {:g}".format).where(cells["source"].eq("sharmix") & cells["goal"].notna(), "")
    return pd.DataFrame(
        {
            "case": _case_names(cells),
            "contender": cells["contender"],
            "µs": cells["median_microseconds"].map("{:,.0f}".format),
            "relative": _with_spread(cells),
            "goal": goal,
        }
    )


def _learned(cells: pd.DataFrame) -> pd.DataFrame:
    pairs = _paired(cells, LEARNED, FIXED)
    return pd.DataFrame({"case": pairs["case"], "relative": pairs["ratio"].map("{:.2f}".format), "goal": "≤ 1.15"})


def _speedups(cells: pd.DataFrame) -> pd.DataFrame:
    pairs = pd.concat(
        _paired(cells[cells["classes"] >= 1000], peer, ours).assign(peer=peer, ours=ours, goal=goal)
        for peer, goal in _FASTER_THAN.items()
        for ours in (FIXED, "1.5-entmax")
    )
    return pd.DataFrame(
        {
            "case": pairs["case"],
            "contender": pairs["ours"],
            "against": pairs["peer"],
            "times faster": pairs["ratio"].map("{:.0f}".format),
            "goal": pairs["goal"].map("≥ {}".format),
        }
    )


def _threads(cells: pd.DataFrame) -> pd.DataFrame:
    both = cells[cells["threads"] == 2].merge(
        cells[cells["threads"] == 1], on=["kind", "contender", "rows", "classes", "regime", "dtype"]
    )
    faster = both["median_microseconds_y"] / both["median_microseconds_x"]
    return pd.DataFrame(
        {
            "case": both["kind"] + " of " + both["rows"].astype(str) + " × " + both["classes"].astype(str),
            "contender": both["contender"],
            "times faster": faster.map("{:.2f}".format),
            "goal": both["source_x"].map({"sharmix": "≥ 1.7"}).fillna(""),
        }
    )


def _linear(linear: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "layer": linear["contender"],
            "seconds": linear["median_microseconds"].map(lambda value: f"{value / 1e6:.2f}"),
            "relative": _with_spread(linear),
            "to linear_cross_entropy": linear["median_ratio_to_fused"].map("{:.2f}".format),
            "to its chunked form": linear["median_ratio_to_chunked"].map("{:.2f}".format),
            "goal": linear["goal"].map("≤ {:g}".format).where(linear["goal"].notna(), ""),
            "MiB": linear["memory_mib"].map("{:.0f}".format),
            "goal, MiB": linear["memory_goal_mib"].map("≤ {:g}".format).where(linear["memory_goal_mib"].notna(), ""),
        }
    )


def _paired(cells: pd.DataFrame, one: str, other: str) -> pd.DataFrame:
    """The ratio of two contenders' medians, in each case that has both."""
    found = cells[cells["contender"] == one].merge(cells[cells["contender"] == other], on=_CASE)
    ratio = found["median_microseconds_x"] / found["median_microseconds_y"]
    return pd.DataFrame({"case": found["kind"] + " of " + _case_names(found), "ratio": ratio})


def _with_spread(rows: pd.DataFrame) -> list[str]:
    return [f"{row.median_ratio:.2f} ({row.lowest_ratio:.2f}–{row.highest_ratio:.2f})" for row in rows.itertuples()]


def _case_names(cells: pd.DataFrame) -> pd.Series:
    size = cells["rows"].astype(str) + " × " + cells["classes"].astype(str) + ", " + cells["regime"]
    dtype = (", " + cells["dtype"]).where(cells["dtype"] != "float32", "")
    threads = (", " + cells["threads"].astype(str) + " threads").where(cells["threads"] > 1, "")
    return size + dtype + threads


def _figure(curve: pd.DataFrame) -> Figure:
    regimes, kinds = list(dict.fromkeys(curve["regime"])), list(BASELINES)
    figure = Figure(figsize=(5.2 * len(regimes), 4.2 * len(kinds) + 1.4), layout="constrained")
    axes = figure.subplots(len(kinds), len(regimes), squeeze=False, sharex=True)
    names = list(dict.fromkeys(curve["contender"]))
    colours = dict(zip(names, colormaps["tab20"].colors, strict=False))
    for line, kind in zip(axes, kinds, strict=True):
        for one, regime in zip(line, regimes, strict=True):
            shown = curve[(curve["kind"] == kind) & (curve["regime"] == regime)]
            for name, group in shown.groupby("contender", sort=False):
                line_style = _LINES[group["source"].iloc[0]]
                one.plot(
                    group["classes"], group["median_microseconds"], line_style,
                    color=colours[name], label=name, marker="o" if line_style == "-" else "s", markersize=3,
                )  # fmt: skip
                one.fill_between(
                    group["classes"], group["lowest_microseconds"], group["highest_microseconds"],
                    color=colours[name], alpha=0.15, linewidth=0,
                )  # fmt: skip
            one.set(xscale="log", yscale="log", title=f"{kind}, {regime}, {shown['rows'].iloc[0]} rows")
            one.set_ylabel("µs, forward and backward")
            one.set_xlabel("classes")
    add_legend(figure, axes.flatten(), columns=3)
    return figure
