"""Speeding Up Entmax, Figure 3: early training of α-ReLU under thresholds τ, given or calibrated."""

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure

from reporting.declaration import ORDERS
from reporting.drawing import draw_against, label_lines, label_share, stack_of_panels
from reporting.figures import figure
from reporting.groups import Group
from reporting.kept_runs import KeptRuns, count_seeds


@figure("thresholds")
def draw_thresholds(kept: KeptRuns) -> Figure:
    """Next-token accuracy and BLEU on dev by training step: one line for each run."""
    groups = _by_threshold(kept.of_table("thresholds"))
    result, (accuracy, bleu) = stack_of_panels(2, 2.6)
    draw_against(accuracy, groups, "steps", "dev/accuracy")
    draw_against(bleu, groups, "steps", "dev/bleu")
    title = f"Multi30k De-En, 1.5-ReLU, {count_seeds(groups)}"
    accuracy.set(xlabel="training steps", title=title)
    bleu.set(xlabel="training steps", ylabel="BLEU on dev")
    label_share(accuracy, "next-token accuracy on dev")
    label_lines(result, [accuracy, bleu])
    return result


def _by_threshold(groups: list[Group]) -> list[Group]:
    """The groups from the least threshold to the largest, in colours that rise with it; the calibrated one black."""
    ordered = sorted(groups, key=_threshold)
    given = sum(group.runs.activation["tau"] is not None for group in ordered)
    colours = iter(colormaps["viridis"](np.linspace(0, 0.85, given)).tolist())
    return [
        group._replace(
            label=f"{_calibrated(group)}τ = {_threshold(group):.3g}",
            style={**group.style, "color": "black" if _calibrated(group) else next(colours), "linestyle": "-"},
        )
        for group in ordered
    ]


def _calibrated(group: Group) -> str:
    if group.runs.activation["tau"] is not None:
        return ""
    return f"calibrated: {'mean ' if len(group.runs) > 1 else ''}"


def _threshold(group: Group) -> float:
    return float(group.runs.values(ORDERS, "tau").mean())
