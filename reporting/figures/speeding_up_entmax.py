"""Figures 1, 3 and 4 of Speeding Up Entmax: training of translation, thresholds of α-ReLU, and tokens above 0."""

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure

from reporting.figures import figure
from reporting.figures.drawing import draw_against, label_lines, label_share, stack_of_panels
from reporting.records.declaration import ORDERS
from reporting.records.groups import Group
from reporting.records.kept_runs import KeptRuns, count_seeds

SUPPORT = "dev/support_to_"


@figure("translation_dynamics")
def draw_translation_dynamics(kept: KeptRuns) -> Figure:
    """One line for each run."""
    groups = kept.of_table("translation_bleu")
    result, [axes] = stack_of_panels(1, 3)
    draw_against(axes, groups, "steps", "dev/bleu")
    axes.set(
        title=f"Multi30k De-En, {count_seeds(groups)}", xlabel="training steps", ylabel="BLEU on dev", ylim=(0, None)
    )
    label_lines(result, [axes])
    return result


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


@figure("translation_support")
def draw_translation_support(kept: KeptRuns) -> Figure:
    """The share of positions with at most n tokens: a line for each configuration, the mean over seeds."""
    result, (axes,) = stack_of_panels(1, 3.4)
    groups = kept.of_table("translation_bleu")
    for group in groups:
        shares = group.runs.at().filter(regex=rf"^{SUPPORT}\d+$").mean(skipna=False)
        shares = shares.rename(lambda name: int(name.removeprefix(SUPPORT))).sort_index()
        axes.plot(shares.index, shares, label=group.label, **group.style)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set(
        title=f"Multi30k De-En, {count_seeds(groups)}",
        xlabel="tokens with probability above 0: at most n",
        ylabel="share of positions on dev",
        ylim=(-0.02, 1.02),
    )
    label_lines(result, [axes], at_start=True)  # all lines end at 1
    return result


def _by_threshold(groups: list[Group]) -> list[Group]:
    """The groups by rising threshold, in colours that get lighter with it. The calibrated group is black."""
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
