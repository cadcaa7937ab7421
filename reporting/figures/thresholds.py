"""Speeding Up Entmax, Figure 3: early training of α-ReLU under thresholds τ, given or calibrated."""

from matplotlib import colormaps
from matplotlib.figure import Figure

from reporting.declaration import ORDERS
from reporting.drawing import add_legend, draw_against
from reporting.figures import figure
from reporting.groups import Group
from reporting.kept_runs import KeptRuns


@figure("thresholds")
def draw_thresholds(kept: KeptRuns) -> Figure:
    """Next-token accuracy and BLEU on dev by training step: one line for each run."""
    groups = _by_threshold(kept.of_table("thresholds"))
    result = Figure(figsize=(10, 4.6), layout="constrained")
    left, right = result.subplots(1, 2)
    draw_against(left, groups, "steps", "dev/accuracy")
    draw_against(right, groups, "steps", "dev/bleu")
    left.set(xlabel="training steps", ylabel="accuracy of the next token on dev")
    right.set(xlabel="training steps", ylabel="BLEU on dev")
    add_legend(result, [left], columns=4)
    return result


def _by_threshold(groups: list[Group]) -> list[Group]:
    """The groups from the least threshold to the largest, in colours that rise with it; the calibrated one black."""
    ordered = sorted(groups, key=_threshold)
    given = [group.label for group in ordered if group.runs.activation["tau"] is not None]
    colours = dict(zip(given, colormaps["viridis"].resampled(len(given)).colors, strict=True))
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
    return float(group.runs.values(ORDERS, "tau").mean())
