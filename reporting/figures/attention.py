"""The orders that each attention head has learned, by layer."""

import re

import pandas as pd
from matplotlib.figure import Figure

from reporting.figures import figure
from reporting.figures.drawing import add_legend, grid_of_panels
from reporting.look.palette import ATTENTION
from reporting.records.kept_runs import KeptRuns, LeftOut, count_seeds
from reporting.records.runs import Runs

TITLES = {"alpha": "α", "q": "q", "r": "r"}
HEAD = re.compile(
    r"(?P<stack>encoder|decoder)\.(?P<layer>\d+)\.(?P<kind>self|cross)_attention\.head_\d+\.(?P<order>\w+)"
)


@figure("attention")
def draw_attention(kept: KeptRuns) -> Figure:
    """One panel for each learned order: a point for each head, by kind and layer, and a line at the heads' start."""
    groups = kept.of_table("attention")
    learned = [(group, order, heads) for group in groups for order, heads in _heads(group.runs).groupby("order")]
    if not learned:
        raise LeftOut("no attention head learns an order")
    result, panels, place = grid_of_panels(len(learned), 2.8)
    for axes, (group, order, heads) in zip(panels, learned, strict=True):
        places = list(dict.fromkeys(zip(heads["kind"], heads["layer"], strict=True)))
        for kind, own in heads.groupby("kind", sort=False, observed=True):
            xs = [places.index((kind, layer)) for layer in own["layer"]]
            style = ATTENTION[str(kind)]
            axes.plot(xs, own["value"], style.marker, color=style.colour, alpha=0.6, label=style.label)
        start = group.runs.records[0].config["model"]["attention"][order]
        axes.axhline(start, color="black", linestyle="--", label="where all heads start")
        axes.set_xticks(range(len(places)), [layer + 1 for _, layer in places])
        axes.set(title=f"{group.label}: {TITLES[order]}", xlabel="layer", ylabel=f"{TITLES[order]} of a head")
    add_legend(result, panels, 2, place)
    result.suptitle(f"Multi30k De-En, {count_seeds(groups)}", x=0.01, ha="left", fontsize="medium")
    return result


def _heads(runs: Runs) -> pd.DataFrame:
    """Kind, layer, order and value of every order that a head learned, after the epoch that each run reports."""
    values = runs.at().stack(future_stack=True).rename_axis(["seed", "column"]).reset_index(name="value")
    heads = values.join(values["column"].str.extract(HEAD)).dropna().astype({"layer": int})
    heads["kind"] = pd.Categorical(heads["stack"] + " " + heads["kind"], list(ATTENTION))
    return heads.sort_values(["kind", "layer"])
