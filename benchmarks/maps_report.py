"""The tables of the maps' times, from the CSV and the goals of maps.yaml, and the figures beside them."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.markdown import Markdown

from benchmarks.contenders import BASELINES, FIXED, LEARNED
from benchmarks.harness import at_least, at_most, origin
from benchmarks.maps_figures import draw
from experiments.files import replace_atomically, write_atomically
from reporting.drawing import rendered
from reporting.markdown import narrow, paragraph

_CASE = ["kind", "rows", "classes", "regime", "dtype", "threads"]
_NOT_MET = "Goals that are not met"
_GROWTH, _THREADS = "Growth with classes and rows", "Two threads against one"
_LINEAR = "An output layer with its loss"
_ROUNDS = (
    "Cells have {rounds} rounds, and the points of the figures {curve_rounds}. The entmax package has {peer_rounds} "
    "rounds, and is left out above {peers_up_to:,} logits. A contender that takes {slow_seconds:g} s or more is called "
    "three times, and the fastest call is kept."
)
_CAPTIONS = {
    _NOT_MET: "Floors, relative to the same baseline: `relu` is one node that reads and writes its input once, `sum` "
    "one that reads its input and writes its gradient; the Python node does the same from Python.",
    _THREADS: "Times faster, round by round. The goal is the gain of softmax, or of cross-entropy, in the same rounds; "
    "the interval is of the median of gain over that gain, and decides.",
    _GROWTH: "x of time ∝ classes^x, or of time ∝ rows^x: the slope of a straight line fitted to the logarithms of the "
    "medians, from {growth[lowest][classes]:,} classes, and from {growth[lowest][rows]:,} rows on.",
    _LINEAR: "Medians of {linear[rounds]} rounds, after a first round that is not counted.",
}


def report(path: Path, settings: Mapping[str, Any]) -> None:
    """Write the tables (Markdown) and the figures (PNG, SVG and PDF) beside the CSV, and print the tables."""
    data = pd.read_csv(path)
    for part in settings["curves"]:
        for name, content in rendered(draw(data[data["part"] == part], part), f"{path.stem}_{part}").items():
            replace_atomically(path.with_name(name), lambda file, content=content: file.write(content))
    text = page(data, settings, path.stem)
    write_atomically(path.with_suffix(".md"), text)
    Console().print(Markdown(text))
    Console().print(f"Written: {path}, and its tables and figures beside it")


def page(data: pd.DataFrame, settings: Mapping[str, Any], name: str) -> str:
    """The tables as Markdown, and links to the figures, whose files begin with the name."""
    measured = (
        "Medians of rounds in which every contender takes its turn (lowest–highest); freed memory is kept, as in a "
        f"training run. {origin(data.iloc[0], ('torch', 'entmax'), 'make bench')}"
    )
    title = "# Time of forward and backward, relative to softmax and to cross-entropy"
    heading = [title, paragraph(measured), paragraph(_ROUNDS.format(**settings))]
    pictures = [f"![Time against {part}]({name}_{part}.png)" for part in settings["curves"]]
    return "\n\n".join([*heading, *_sections(data, settings), *pictures]) + "\n"


def _judged_tables(data: pd.DataFrame, settings: Mapping[str, Any]) -> dict[str, pd.DataFrame]:
    """Tables with goals, by title. A line has a case, a contender, the number measured, its goal and the verdict."""
    cells = data[data["part"] == "cell"]
    tables = {
        f"{kind.capitalize()} against {baseline}": _ratios(cells[cells["kind"] == kind])
        for kind, baseline in BASELINES.items()
        if kind != "layer"
    }
    tables["Learned orders against fixed"] = _learned(cells, settings["learned_over_fixed"]["goal"])
    tables["Against the entmax package"] = _speedups(cells, **settings["faster_than"])
    tables[_THREADS] = _threads(cells)
    tables[_GROWTH] = _growth(data[data["part"].isin(settings["curves"])], **settings["growth"])
    return {title: table for title, table in tables.items() if len(table)}


def _sections(data: pd.DataFrame, settings: Mapping[str, Any]) -> Iterator[str]:
    judged = _judged_tables(data, settings)
    tables = {_NOT_MET: _not_met(judged)} | judged
    if _GROWTH in judged:
        tables[_GROWTH] = _by_case(judged[_GROWTH])
    linear = data[data["part"] == "linear"]
    if len(linear):
        tables[_LINEAR] = _linear(linear)
    for title, table in tables.items():
        yield f"## {title}"
        if title in _CAPTIONS:
            yield paragraph(_CAPTIONS[title].format(**settings))
        if table.empty:
            yield "None."
        elif title == _NOT_MET:
            # its cells are lists, which no cut makes narrow
            yield table.to_markdown(index=False, disable_numparse=True)
        else:
            yield narrow(table.drop(columns="floor", errors="ignore"))


def _not_met(judged: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """A line for each case with goals that are missed or undecided: its contenders with their medians and goals."""
    every = pd.concat([table.assign(table=title) for title, table in judged.items()])
    lines = every[every["verdict"].isin(["missed", "undecided"])].fillna("")
    median = lines["measured"].str.split(" (", regex=False).str[0]
    contenders = lines["contender"] + ": " + median + " (" + lines["goal"] + ")"
    by_case = lines.assign(contenders=contenders).groupby(["table", "case", "verdict", "floor"], sort=False)
    return by_case["contenders"].agg("; ".join).reset_index()[["table", "case", "verdict", "contenders", "floor"]]


def _ratios(cells: pd.DataFrame) -> pd.DataFrame:
    cases = _case_names(cells)
    floors = cells["contender"] + " " + cells["median_ratio"].map("{:.2f}".format)
    floors = floors[cells["source"] == "floor"].groupby(cases).agg(", ".join)
    return pd.DataFrame(
        {
            "case": cases,
            "contender": cells["contender"],
            "µs": cells["median_microseconds"].map("{:,.0f}".format),
            "measured": _with_spread(cells, "ratio"),
            **_judged(cells["median_ratio"], cells["goal"]),
            "floor": cases.map(floors),
        }
    )


def _judged(values: pd.Series, goals: pd.Series | float, at_least_it: bool = False) -> dict[str, pd.Series]:
    """The columns of the goal and of the verdict, empty where there is no goal."""
    goals, judge, sign = pd.Series(goals, values.index), *((at_least, "≥") if at_least_it else (at_most, "≤"))
    verdicts = [judge(goal, value, value) for goal, value in zip(goals, values, strict=True)]
    return {
        "goal": goals.map(f"{sign} {{:g}}".format).where(goals.notna(), ""),
        "verdict": pd.Series(verdicts, values.index).where(goals.notna(), ""),
    }


def _learned(cells: pd.DataFrame, goal: float) -> pd.DataFrame:
    pairs = _paired(cells, LEARNED, FIXED)
    measured = pairs["ratio"].map("{:.2f}".format)
    return pairs[["case", "contender"]].assign(measured=measured, **_judged(pairs["ratio"], goal))


def _speedups(cells: pd.DataFrame, from_classes: int, goals: Mapping[str, float]) -> pd.DataFrame:
    large = cells[cells["classes"] >= from_classes]
    pairs = pd.concat(
        _paired(large, peer, ours).assign(contender=ours, against=peer, number=goal)
        for peer, goal in goals.items()
        for ours in (FIXED, "1.5-entmax")
    ).reset_index()
    measured = pairs["ratio"].map("{:.0f} times faster".format)
    columns = _judged(pairs["ratio"], pairs["number"], at_least_it=True)
    return pairs[["case", "contender", "against"]].assign(measured=measured, **columns)


def _threads(cells: pd.DataFrame) -> pd.DataFrame:
    several = cells[cells["threads"] > 1]
    if several.empty:
        return several
    ours = several["source"] == "sharmix"
    baselines = several[several["contender"].isin(BASELINES.values())].set_index("kind")["median_gain"]
    ends = several[["relative_gain_low", "relative_gain_high"]].to_numpy()
    return pd.DataFrame(
        {
            "case": several["kind"] + " of " + _case_names(several),
            "contender": several["contender"],
            "measured": _with_spread(several, "gain"),
            "goal": several["kind"].map(baselines.map("≥ {:.2f}".format)).where(ours, ""),
            "over the goal": pd.Series([f"{low:.3f}–{high:.3f}" for low, high in ends], several.index).where(ours, ""),
            "verdict": [at_least(1, *both) if our else "" for our, both in zip(ours, ends, strict=True)],
        }
    )


def _growth(curves: pd.DataFrame, goal: float, lowest: Mapping[str, int]) -> pd.DataFrame:
    """The power of each contender's time, by the part of its curve from the lowest number of classes, or rows, on."""
    lines = []
    for (part, kind, regime, contender), curve in curves.groupby(["part", "kind", "regime", "contender"], sort=False):
        upper = curve[curve[part] >= lowest[part]]
        if len(upper) > 1:
            power = np.polyfit(np.log(upper[part]), np.log(upper["median_microseconds"]), 1)[0]
            case = f"{part}: {kind}, {regime}"
            wanted = goal if upper["source"].iloc[0] == "sharmix" else np.nan
            lines.append({"case": case, "contender": contender, "power": power, "wanted": wanted})
    table = pd.DataFrame(lines, columns=["case", "contender", "power", "wanted"])
    measured = table["power"].map("{:.3f}".format)
    return table[["case", "contender"]].assign(measured=measured, **_judged(table["power"], table["wanted"]))


def _by_case(growth: pd.DataFrame) -> pd.DataFrame:
    """A line for each contender with a column for each case; the baselines of maps and of losses share a line."""
    shared = ("softmax", "cross-entropy"), ("relu", "sum")
    lines = growth["contender"].replace({name: " or ".join(names) for names in shared for name in names})
    wide = growth.assign(contender=lines).pivot(index="contender", columns="case", values="measured").fillna("–")
    wide = wide.loc[lines.unique(), growth["case"].unique()]
    return wide.assign(goal=growth.groupby("contender")["goal"].first()).fillna("").reset_index()


def _linear(linear: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "layer": linear["contender"],
            "seconds": linear["median_microseconds"].map(lambda value: f"{value / 1e6:.2f}"),
            "relative": _with_spread(linear, "ratio"),
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
    return pd.DataFrame({"case": found["kind"] + " of " + _case_names(found), "contender": one, "ratio": ratio})


def _with_spread(rows: pd.DataFrame, name: str) -> list[str]:
    numbers = rows[[f"{part}_{name}" for part in ("median", "lowest", "highest")]].to_numpy()
    return [f"{median:.2f} ({lowest:.2f}–{highest:.2f})" for median, lowest, highest in numbers]


def _case_names(cells: pd.DataFrame) -> pd.Series:
    size = cells["rows"].astype(str) + " × " + cells["classes"].astype(str) + ", " + cells["regime"]
    dtype = (", " + cells["dtype"]).where(cells["dtype"] != "float32", "")
    threads = (", " + cells["threads"].astype(str) + " threads").where(cells["threads"] > 1, "")
    return size + dtype + threads
