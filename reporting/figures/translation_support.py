"""Speeding Up Entmax, Figure 4: how many tokens have a probability above 0, at each position of dev.

The paper's figure shows the number of zeros: the vocabulary less our number.
"""

import pandas as pd
from matplotlib.figure import Figure

from reporting.drawing import label_lines, stack_of_panels
from reporting.figures import figure
from reporting.kept_runs import KeptRuns, count_seeds
from reporting.runs import Runs

SUPPORT = "dev/support_to_"


@figure("translation_support")
def draw_translation_support(kept: KeptRuns) -> Figure:
    """The share of positions with at most n tokens: a line for each configuration, the mean over seeds."""
    result, (axes,) = stack_of_panels(1, 3.4)
    groups = kept.of_table("translation_bleu")
    for group in groups:
        shares = _shares(group.runs)
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


def _shares(runs: Runs) -> pd.Series:
    shares = runs.at().filter(regex=rf"^{SUPPORT}\d+$").mean(skipna=False)  # a line over all seeds, or no line
    return shares.rename(lambda name: int(name.removeprefix(SUPPORT))).sort_index()
