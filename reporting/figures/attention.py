"""The orders that each attention head has learned, by layer."""

import re
from typing import NamedTuple

from matplotlib.figure import Figure

from reporting.drawing import row_of_panels
from reporting.figures import figure
from reporting.kept_runs import KeptRuns, LeftOut
from reporting.runs import Runs

TITLES = {"alpha": "α", "q": "q", "r": "r"}
HEAD = re.compile(
    r"(?P<stack>encoder|decoder)\.(?P<layer>\d+)\.(?P<kind>self|cross)_attention\.head_\d+\.(?P<order>\w+)"
)


class _Learned(NamedTuple):
    """An order of all heads: their places, such as "encoder 1 self", its values, its start; no place if none learns."""

    places: list[str]
    values: list[float]
    start: float | None


@figure("attention")
def draw_attention(kept: KeptRuns) -> Figure:
    """One panel for each learned order: a point for each head, and a line where the heads start."""
    learned = {
        (group.label, TITLES[order]): heads
        for group in kept.of_table("attention")
        for order in TITLES
        if (heads := _learned(group.runs, order)).places
    }
    if not learned:
        raise LeftOut("no attention head learns an order")
    result, panels = row_of_panels(len(learned), 4.6, 4.4)
    for axes, ((label, title), heads) in zip(panels, learned.items(), strict=True):
        axes.plot(heads.places, heads.values, linestyle="none", marker="o", color="black", alpha=0.5)
        axes.axhline(heads.start, color="black", linestyle="--")
        axes.set(title=label, ylabel=f"{title}: a point a head, a line where they start")
        axes.tick_params(axis="x", rotation=60)
    return result


def _learned(runs: Runs, order: str) -> _Learned:
    """An order of every head, after the epoch that each run reports."""
    found = [
        (f"{match['stack']} {int(match['layer']) + 1} {match['kind']}", value)
        for _, line in runs.at().iterrows()
        for name, value in line.items()
        if (match := HEAD.fullmatch(str(name))) and match["order"] == order
    ]
    start = runs.records[0].config["model"]["attention"].get(order)
    return _Learned([place for place, _ in found], [value for _, value in found], start)
