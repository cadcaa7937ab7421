"""The page of the maps' times, from the CSV and the goals of maps.yaml."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.contenders import BASELINES, FIXED, LEARNED
from benchmarks.publication import origin, with_ranges
from benchmarks.verdicts import at_least
from reporting.text.markdown import narrow, paragraph

_CASE = ["kind", "rows", "classes", "regime", "dtype", "threads"]
_MAP, _LOSS = "Map against softmax", "Loss against cross-entropy"
_LEARNED, _PEERS, _THREADS = "Learned orders against fixed", "Against the entmax package", "Two threads against one"
_GROWTH, _LAYER = "Growth with classes and rows", "An output layer with its loss"
_SUMMARY = (
    "Time of forward and backward on one thread, as a multiple of softmax's time, or of cross-entropy's for a loss: "
    "below 1 is faster. Few of the logits matter (*sparse*: randn × {regimes[sparse]:g})."
)
_ROUNDS = (
    "Each number is the median of rounds in which every contender takes its turn (lowest–highest). Cells have {rounds} "
    "rounds, and the points of the figures {curve_rounds}. The entmax package has {peer_rounds} rounds, and is left "
    "out above {peers_up_to:,} logits. A contender that takes {slow_seconds:g} s or more is called three times, and "
    "the fastest call is kept. Freed memory is kept, as in a training run. *Dense* logits are randn × "
    "{regimes[dense]:g}: nothing, or little, is sparse."
)
_FLOORS = (
    "The least that there is to do: `relu` is one node that reads and writes its input once, `sum` one that reads its "
    "input and writes its gradient; the Python node does the same from Python."
)
_CAPTIONS = {
    _MAP: _FLOORS,
    _THREADS: "Times faster, round by round.",
    _GROWTH: "x of time ∝ classes^x, or of time ∝ rows^x: the slope of a straight line fitted to the logarithms of the "
    "medians, from {growth[lowest][classes]:,} classes, and from {growth[lowest][rows]:,} rows on.",
    _LAYER: "Medians of {linear[rounds]} rounds, after a first round that is not counted.",
}
_GOALS = (
    "`benchmarks/maps.yaml` sets goals for our times; {met} of {every} are met. These are the others. On two threads "
    "the goal is the gain of softmax, or of cross-entropy, in the same rounds, and the interval of the median of gain "
    "over that gain decides. An output layer is compared with each of torch's."
)


def page(data: pd.DataFrame, settings: Mapping[str, Any]) -> str:
    """The page as Markdown, with links to the figures."""
    judged = _judged_tables(data, settings)
    wide = {title: table if title in (_LEARNED, _PEERS) else _by_case(table) for title, table in judged.items()}
    linear = data[data["part"] == "linear"]
    if len(linear):
        judged[_LAYER], wide[_LAYER] = _linear_goals(linear), _linear(linear)
    parts = [
        "# Time of maps and losses",
        paragraph(_SUMMARY.format(**settings)),
        _summary(data[data["part"] == "cell"], **settings["summary"]),
        *(f"![Time against {part}](maps_{part}.svg)" for part in settings["curves"]),
        paragraph(f"{_ROUNDS.format(**settings)} {origin(data, 'make bench', 'entmax')}"),
    ]
    for title, table in wide.items():
        caption = [paragraph(_CAPTIONS[title].format(**settings))] if title in _CAPTIONS else []
        parts += [f"## {title}", *caption, narrow(table.drop(columns=["goal", "verdict"], errors="ignore"))]
    goals = pd.concat([table[table["goal"] != ""].assign(table=title) for title, table in judged.items()])
    parts += ["## Our goals", paragraph(_GOALS.format(met=(goals["verdict"] == "met").sum(), every=len(goals)))]
    return "\n\n".join([*parts, _missed(goals)]) + "\n"


def _summary(cells: pd.DataFrame, sizes: Sequence[Sequence[int]], contenders: Sequence[str]) -> str:
    """A row for each kind and size of sparse logits: the baseline's time, and the contenders' as multiples of it."""
    usual = cells[(cells["regime"] == "sparse") & (cells["dtype"] == "float32") & (cells["threads"] == 1)]
    cases = dict([*usual.groupby(["kind", "rows", "classes"])])
    lines = []
    for kind in ("map", "loss"):
        for rows, classes in sizes:
            case = cases[kind, rows, classes].set_index("contender")
            time = f"{case['median_microseconds'][BASELINES[kind]]:,.0f} µs"
            ratios = case["median_ratio"].reindex(contenders).map("{:.2f}".format, na_action="ignore").fillna("–")
            lines.append({"logits": f"{kind} of {rows} × {classes:,}", "softmax or cross-entropy": time, **ratios})
    return pd.DataFrame(lines).to_markdown(index=False, disable_numparse=True)


def _judged_tables(data: pd.DataFrame, settings: Mapping[str, Any]) -> dict[str, pd.DataFrame]:
    """Tables by title. A line has a case, a contender, the number measured, and the goal and the verdict, if any."""
    cells = data[data["part"] == "cell"]
    learned_over_fixed = _paired(cells, LEARNED, FIXED).assign(**settings["learned_over_fixed"])
    tables = {
        _MAP: _ratios(cells[cells["kind"] == "map"]),
        _LOSS: _ratios(cells[cells["kind"] == "loss"]),
        _LEARNED: _judged(learned_over_fixed, "{:.2f}"),
        _PEERS: _speedups(cells, **settings["faster_than"]),
        _THREADS: _threads(cells),
        _GROWTH: _growth(data[data["part"].isin(settings["curves"])], **settings["growth"]),
    }
    return {title: table for title, table in tables.items() if len(table)}


def _missed(goals: pd.DataFrame) -> str:
    """A line for each case with goals that are missed or undecided: its contenders with their medians and goals."""
    lines = goals[goals["verdict"] != "met"]
    median = lines["measured"].str.split(" (", regex=False).str[0]
    contenders = lines["contender"] + ": " + median + " (" + lines["goal"] + ")"
    by_case = lines.assign(contenders=contenders).groupby(["table", "case", "verdict"], sort=False)
    # its cells are lists, which no cut makes narrow
    return by_case["contenders"].agg("; ".join).reset_index().to_markdown(index=False, disable_numparse=True)


def _judged(table: pd.DataFrame, digits: str, sign: str = "≤") -> pd.DataFrame:
    """The table with its values and goals as texts, and with verdicts. Where there is no goal, both are empty."""
    values, goals = table["value"], table["goal"].astype(float)
    met = values <= goals if sign == "≤" else values >= goals
    return table.drop(columns="value").assign(
        measured=values.map(digits.format),
        goal=goals.map(f"{sign} {{:g}}".format).where(goals.notna(), ""),
        verdict=met.map({True: "met", False: "missed"}).where(goals.notna(), ""),
    )


def _ratios(cells: pd.DataFrame) -> pd.DataFrame:
    table = cells[["contender", "goal"]].assign(case=_case_names(cells), value=cells["median_ratio"])
    return _judged(table, "{:.2f}").assign(measured=with_ranges(cells, "ratio"))


def _speedups(cells: pd.DataFrame, from_classes: int, goals: Mapping[str, float]) -> pd.DataFrame:
    large = cells[cells["classes"] >= from_classes]
    pairs = [
        _paired(large, peer, ours).assign(contender=ours, against=peer, goal=goal)
        for peer, goal in goals.items()
        for ours in (FIXED, "1.5-entmax")
    ]
    return _judged(pd.concat(pairs, ignore_index=True), "{:.0f} times faster", "≥")


def _threads(cells: pd.DataFrame) -> pd.DataFrame:
    several = cells[cells["threads"] > 1]
    ours = several["source"] == "sharmix"
    baselines = several[several["contender"].isin(BASELINES.values())].set_index("kind")["median_gain"]
    ends = several[["relative_gain_low", "relative_gain_high"]].to_numpy()
    return several[["contender"]].assign(
        case=several["kind"] + " of " + _case_names(several),
        measured=with_ranges(several, "gain"),
        goal=several["kind"].map(baselines.map("≥ {:.2f}".format)).where(ours, ""),
        verdict=[at_least(1, *both) if our else "" for our, both in zip(ours, ends, strict=True)],
    )


def _growth(curves: pd.DataFrame, goal: float, lowest: Mapping[str, int]) -> pd.DataFrame:
    """The power of each contender's time, by the part of its curve from the lowest number of classes, or rows, on."""
    lines = []
    for (part, kind, regime, contender), curve in curves.groupby(["part", "kind", "regime", "contender"], sort=False):
        upper = curve[curve[part] >= lowest[part]]
        if len(upper) > 1:
            slope = np.polyfit(np.log(upper[part]), np.log(upper["median_microseconds"]), 1)[0]
            wanted = goal if upper["source"].iloc[0] == "sharmix" else np.nan
            lines.append((f"{part}: {kind}, {regime}", contender, slope, wanted))
    return _judged(pd.DataFrame(lines, columns=["case", "contender", "value", "goal"]), "{:.3f}")


def _by_case(table: pd.DataFrame) -> pd.DataFrame:
    """A line for each contender with a column for each case."""
    wide = table.pivot(index="contender", columns="case", values="measured").fillna("–")
    return wide.loc[table["contender"].unique(), table["case"].unique()].reset_index()


def _linear(linear: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "layer": linear["contender"],
            "seconds": linear["median_microseconds"].map(lambda value: f"{value / 1e6:.2f}"),
            "relative": with_ranges(linear, "ratio"),
            "to linear_cross_entropy": linear["median_ratio_to_fused"].map("{:.2f}".format),
            "to its chunked form": linear["median_ratio_to_chunked"].map("{:.2f}".format),
            "MiB": linear["memory_mib"].map("{:.0f}".format),
        }
    )


def _linear_goals(linear: pd.DataFrame) -> pd.DataFrame:
    slowest = linear[["median_ratio", "median_ratio_to_fused", "median_ratio_to_chunked"]].max(axis="columns")
    time = linear[["contender", "goal"]].assign(case="time", value=slowest)
    memory = linear[["contender"]].assign(case="MiB", value=linear["memory_mib"], goal=linear["memory_goal_mib"])
    return pd.concat([_judged(time, "{:.2f}"), _judged(memory, "{:.0f}")])


def _paired(cells: pd.DataFrame, one: str, other: str) -> pd.DataFrame:
    """The ratio of two contenders' medians, in each case that has both."""
    found = cells[cells["contender"] == one].merge(cells[cells["contender"] == other], on=_CASE)
    ratio = found["median_microseconds_x"] / found["median_microseconds_y"]
    return pd.DataFrame({"case": found["kind"] + " of " + _case_names(found), "contender": one, "value": ratio})


def _case_names(cells: pd.DataFrame) -> pd.Series:
    size = cells["rows"].astype(str) + " × " + cells["classes"].astype(str) + ", " + cells["regime"]
    dtype = (", " + cells["dtype"]).where(cells["dtype"] != "float32", "")
    threads = (", " + cells["threads"].astype(str) + " threads").where(cells["threads"] > 1, "")
    return size + dtype + threads
