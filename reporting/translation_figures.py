"""What the figures of Speeding Up Entmax show, as our runs show it."""

import re
from collections.abc import Mapping
from statistics import mean
from typing import Any

import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reporting.groups import Group
from reporting.panels import add_legend
from reporting.statistics import reported_epoch

SUPPORT = "dev/support_to_"
ORDERS = {"alpha": "α", "q": "q", "r": "r"}
HEAD = re.compile(
    r"(?P<stack>encoder|decoder)\.(?P<layer>\d+)\.(?P<kind>self|cross)_attention\.head_\d+\.(?P<order>\w+)"
)


def draw_dynamics(groups: list[Group]) -> Figure:
    """Figures 1 and 2: BLEU on dev by training step, and by time spent training; a line a run."""
    figure = Figure(figsize=(10, 4.6), layout="constrained")
    by_step, by_time = figure.subplots(1, 2, sharey=True)
    draw_against(by_step, groups, "steps", "dev/bleu")
    draw_against(by_time, groups, "training_seconds", "dev/bleu", scale=1 / 60)
    by_step.set(xlabel="training steps", ylabel="BLEU on dev")
    by_time.set(xlabel="minutes of training, without measuring")
    add_legend(figure, [by_step], columns=4)
    return figure


def draw_thresholds(groups: list[Group]) -> Figure:
    """Figure 3: early training of α-ReLU under thresholds τ: next-token accuracy and BLEU on dev."""
    figure = Figure(figsize=(10, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    groups = _by_threshold(groups)
    draw_against(left, groups, "steps", "dev/accuracy")
    draw_against(right, groups, "steps", "dev/bleu")
    left.set(xlabel="training steps", ylabel="accuracy of the next token on dev")
    right.set(xlabel="training steps", ylabel="BLEU on dev")
    add_legend(figure, [left], columns=4)
    return figure


def draw_supports(groups: list[Group]) -> Figure:
    """Figure 4: how many tokens get a probability above 0, at each position of dev: the share with at most n.

    The number of zeros, which the paper's figure has, is the vocabulary less that.
    """
    figure = Figure(figsize=(6.4, 4.8), layout="constrained")
    axes = figure.subplots()
    for group in groups:
        shares = pd.DataFrame({seed: _supports(record) for seed, record in group.runs.items()}).mean(axis="columns")
        axes.plot(shares.index, shares, label=group.label, markersize=4, **group.style)
    axes.set_xscale("log", base=2)
    axes.set(
        xlabel="tokens with probability above 0: at most n", ylabel="share of positions on dev", ylim=(-0.02, 1.02)
    )
    add_legend(figure, [axes], columns=2)
    return figure


def draw_heads(groups: list[Group]) -> Figure | None:
    """The orders that each head has learned, by layer, and where they start; None where no head learns any.

    A panel an order.
    """
    learned = {
        (group.label, order): values
        for group in groups
        for order in ORDERS
        if len(values := pd.concat(_orders_of_heads(record, order) for record in group.runs.values()))
    }
    if not learned:
        return None
    figure = Figure(figsize=(4.6 * len(learned), 4.4), layout="constrained")
    panels = figure.subplots(1, len(learned), squeeze=False).flat
    for axes, ((label, order), values) in zip(panels, learned.items(), strict=True):
        axes.plot(values["place"], values["order"], linestyle="none", marker="o", color="black", alpha=0.5)
        for start in values["start"].unique():
            axes.axhline(start, color="black", linestyle="--")
        axes.set(title=label, ylabel=f"{ORDERS[order]}: a point a head, a line where they start")
        axes.tick_params(axis="x", rotation=60)
    return figure


def _orders_of_heads(record: Mapping[str, Any], order: str) -> pd.DataFrame:
    """The places, such as "encoder 1 self", starts and values of an order after the epoch that the run reports."""
    start = record["config"]["model"]["attention"][order]
    row = next(row for row in record["curves"] if row["epoch"] == reported_epoch(record))
    found = [(HEAD.fullmatch(name), value) for name, value in row.items()]
    return pd.DataFrame(
        [
            {"place": f"{match['stack']} {int(match['layer']) + 1} {match['kind']}", "order": value, "start": start}
            for match, value in found
            if match and match["order"] == order
        ]
    )


def draw_against(axes: Axes, groups: list[Group], x: str, y: str, scale: float = 1.0) -> None:
    """A column of the records' curves against another, a line a run.

    Args:
        axes: where to draw.
        groups: the runs.
        x, y: names in the curves.
        scale: what the values of x are multiplied by.
    """
    for group in groups:
        for number, record in enumerate(group.runs.values()):
            curve = pd.DataFrame(record["curves"])
            label = group.label if number == 0 else None
            axes.plot(scale * curve[x], curve[y], label=label, markersize=4, **group.style)


def _by_threshold(groups: list[Group]) -> list[Group]:
    """The groups from the least threshold to the largest, in colours that say so; the calibrated one black."""
    ordered = sorted(groups, key=_threshold)
    given = [group for group in ordered if group.activation()["tau"] is not None]
    colours = dict(
        zip((group.label for group in given), colormaps["viridis"].resampled(len(given)).colors, strict=True)
    )
    return [
        group._replace(
            label=f"{'' if group.label in colours else _calibrated(group)}τ = {_threshold(group):.3g}",
            style={**group.style, "color": colours.get(group.label, "black"), "linestyle": "-"},
        )
        for group in ordered
    ]


def _calibrated(group: Group) -> str:
    return f"calibrated: {'mean ' if len(group.runs) > 1 else ''}"


def _threshold(group: Group) -> float:
    return mean(record["curves"][-1]["tau"] for record in group.runs.values())


def _supports(record: Mapping[str, Any]) -> pd.Series:
    row = next(row for row in record["curves"] if row["epoch"] == reported_epoch(record))
    shares = {int(name.removeprefix(SUPPORT)): value for name, value in row.items() if name.startswith(SUPPORT)}
    return pd.Series(shares).sort_index()
