"""The loss of sparsemax beside logistic, hinge and Huber, for two classes; computed by the library alone."""

import torch
from matplotlib.figure import Figure
from torch import Tensor

import sharmix
from reporting.figures import figure
from reporting.kept_runs import KeptRuns
from reporting.palette import look


@figure("losses")
def draw_losses(_: KeptRuns) -> Figure:
    """The losses by the margin m = z_y − z_other."""
    result = Figure(figsize=(6.4, 4.6), layout="constrained")
    axes = result.subplots()
    margin = torch.linspace(-3, 3, 301, dtype=torch.float64)
    for name, (values, style) in losses(margin).items():
        axes.plot(margin, values, label=name, **style)
    axes.set(xlabel="margin z_y − z_other", ylabel="loss", ylim=(-0.1, 4.1))
    axes.legend(frameon=False)
    return result


def losses(margin: Tensor) -> dict[str, tuple[Tensor, dict[str, str]]]:
    """The losses shown.

    Args:
        margin: m, [n].

    Returns:
        By name the values of each loss, [n], and the style of its line.

    Source: Martins and Astudillo, From Softmax to Sparsemax, 2016, section 3.2; Huber's for classification is
    Zhang's, 2004: (1 − m)₊² for m ≥ −1, else −4m. The loss of sparsemax is a quarter of it.
    """
    logits = torch.stack([margin, torch.zeros_like(margin)], -1)
    targets = torch.zeros(len(margin), dtype=torch.long)
    logistic, sparsemax = (
        sharmix.build_activation(name).loss(logits, targets, reduction="none") for name in ("softmax", "sparsemax")
    )
    huber = torch.where(margin >= -1, (1 - margin).clamp_min(0).square(), -4 * margin)
    return {
        "logistic (softmax)": (logistic, {"color": look("softmax").colour}),
        "sparsemax": (sparsemax, {"color": look("sparsemax").colour}),
        "hinge": ((1 - margin).clamp_min(0), {"color": "0.5", "linestyle": "--"}),
        "Huber (modified, for classes)": (huber, {"color": "0.5", "linestyle": ":"}),
    }
