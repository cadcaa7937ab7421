"""Losses of two classes by their margin; computed without records."""

from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

import sharmix
from reporting.figures import figure
from reporting.figures.drawing import label_lines, stack_of_panels
from reporting.look.palette import look
from reporting.records.kept_runs import KeptRuns


@figure("losses")
def draw_losses(_: KeptRuns) -> Figure:
    """The losses by the margin m = z_y − z_other."""
    result, (axes,) = stack_of_panels(1, 3.6)
    margin = torch.linspace(-2, 3, 301, dtype=torch.float64)
    for name, (values, style) in losses(margin).items():
        axes.plot(margin, values, label=name, **style)
    axes.set(xlabel="margin z_y − z_other", ylabel="loss", ylim=(-0.1, 4.1), title="Losses of two classes, computed")
    label_lines(result, [axes], at_start=True)  # most end at 0
    return result


def losses(margin: Tensor) -> dict[str, tuple[Tensor, dict[str, Any]]]:
    """The losses shown.

    Source: Martins and Astudillo, From Softmax to Sparsemax, 2016, section 3.2; Huber's for classification is
    Zhang's, 2004: (1 − m)₊² for m ≥ −1, else −4m. The loss of sparsemax is a quarter of it.
    """
    logits = torch.stack([margin, torch.zeros_like(margin)], -1)
    targets = torch.zeros(len(margin), dtype=torch.long)
    activations = {
        "logistic (softmax)": ("softmax", {}, "-"),
        "SharMiX (1.25, 1.50)": ("sharmix_fixed", {"q": 1.25, "r": 1.5}, "-"),
        "SharMiX (1.75, 1.25)": ("sharmix_fixed", {"q": 1.75, "r": 1.25}, "--"),
        "1.5-entmax": ("entmax", {"alpha": 1.5}, "-"),
        "sparsemax": ("sparsemax", {}, "-"),
    }
    ours = {
        title: (
            sharmix.build_activation(name, **parameters).loss(logits, targets, reduction="none"),
            {"color": look(name).colour, "linestyle": line},
        )
        for title, (name, parameters, line) in activations.items()
    }
    huber = torch.where(margin >= -1, (1 - margin).clamp_min(0).square(), -4 * margin)
    return ours | {
        "hinge": ((1 - margin).clamp_min(0), {"color": "0.5", "linestyle": "--"}),
        "Huber (modified, for classes)": (huber, {"color": "0.5", "linestyle": ":"}),
    }
