"""The page of the maps' times, from the CSV."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from benchmarks.contenders import BASELINES
from benchmarks.publication import origin, with_ranges
from reporting.text.markdown import narrow, paragraph

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
    "A lower limit of the time: `relu` is one node that reads and writes its input once, `sum` one that reads its "
    "input and writes its gradient; the Python node does the same from Python."
)
_PACKAGE = ["entmax15 (package)", "entmax15 (package), full sort", "entmax_bisect (package)"]
_FASTER = (
    "How many times as long the package takes for 1.5-entmax. Both are compared with the baseline, each in its own "
    "rounds, and this is the ratio of the two. By default the package's loss sorts the 100 largest logits of a row, "
    "and more where these do not suffice; its map sorts the whole row."
)
OWN = "1.5-entmax"
_LAYER = "Medians of {linear[rounds]} rounds, after a first round that is not counted."


def page(data: pd.DataFrame, settings: Mapping[str, Any]) -> str:
    """The page as Markdown, with links to the figures."""
    cells, linear = data[data["part"] == "cell"], data[data["part"] == "linear"]
    parts = [
        "# Time of maps and losses",
        paragraph(_SUMMARY.format(**settings)),
        _summary(cells, **settings["summary"]),
        *(f"![Time against {part}](maps_{part}.svg)" for part in settings["curves"]),
        paragraph(f"{_ROUNDS.format(**settings)} {origin(data, 'make bench', 'entmax')}"),
        "## Map against softmax",
        paragraph(_FLOORS),
        narrow(_by_case(cells[cells["kind"] == "map"])),
        "## Loss against cross-entropy",
        narrow(_by_case(cells[cells["kind"] == "loss"])),
        "## 1.5-entmax against the entmax package",
        paragraph(_FASTER),
        narrow(_beside_package(cells)),
    ]
    if len(linear):
        parts += ["## An output layer with its loss", paragraph(_LAYER.format(**settings)), narrow(_linear(linear))]
    return "\n\n".join(parts) + "\n"


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


def _by_case(cells: pd.DataFrame) -> pd.DataFrame:
    """A line for each contender with a column for each case: the ratio to the baseline's time, with its range."""
    table = cells[["contender"]].assign(case=_case_names(cells), ratio=with_ranges(cells, "ratio"))
    wide = table.pivot(index="contender", columns="case", values="ratio").fillna("–")
    return wide.loc[table["contender"].unique(), table["case"].unique()].reset_index()


def _beside_package(cells: pd.DataFrame) -> pd.DataFrame:
    """A line for each case in which the package was measured: its times as multiples of ours."""
    named = cells.assign(case=cells["kind"] + " of " + _case_names(cells))
    ratios = named.pivot(index="case", columns="contender", values="median_ratio").reindex(columns=[*_PACKAGE, OWN])
    ratios = ratios.loc[named["case"].unique()].dropna(subset=_PACKAGE[0])
    times = ratios[_PACKAGE].div(ratios[OWN], axis="index")
    return times.map("{:.0f}".format, na_action="ignore").fillna("–").reset_index()


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


def _case_names(cells: pd.DataFrame) -> pd.Series:
    size = cells["rows"].astype(str) + " × " + cells["classes"].astype(str) + ", " + cells["regime"]
    dtype = (", " + cells["dtype"]).where(cells["dtype"] != "float32", "")
    threads = (", " + cells["threads"].astype(str) + " threads").where(cells["threads"] > 1, "")
    return size + dtype + threads
