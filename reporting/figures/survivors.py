"""README's picture: four maps of the same logits, and how many classes survive under each pair of orders (q, r)."""

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm
from matplotlib.figure import Figure

import sharmix
from reporting.figures import figure
from reporting.figures.drawing import WIDTH
from reporting.look.palette import look
from reporting.look.themed_svg import DARK_INK, LIGHT_INK
from reporting.records.kept_runs import KeptRuns

LOGITS = (2.2, 1.9, 1.6, 1.3, 1.0, 0.7, -1.2, -1.8)  # each probability is large enough to see, or 0
Q, R = 1.25, 1.5
SHOWN = {
    "softmax": ("softmax", {}),
    f"SharMiX ({Q}, {R})": ("sharmix_fixed", {"q": Q, "r": R}),
    "1.5-entmax": ("entmax", {"alpha": 1.5}),
    "sparsemax": ("sparsemax", {}),
}
PINS = {"softmax": (1.0, 1.0), "sharmix_fixed": (Q, R), "entmax": (1.5, 1.5), "sparsemax": (2.0, 2.0)}
NAMES = dict(zip((name for name, _ in SHOWN.values()), SHOWN, strict=True))
LABEL = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.8}
LABEL_PLACES = {  # points from the marker, and the side of the label that stands there
    "softmax": (4, 12, "left"),
    "sharmix_fixed": (0, 16, "center"),
    "entmax": (0, -16, "center"),
    "sparsemax": (-6, -12, "right"),
}
STEPS = 201  # along each order
COUNTED = 166  # the row of the plane, r = 1.83, in which each region shows its number


@figure("survivors")
def draw_survivors(_: KeptRuns) -> Figure:
    """Bars of the probabilities on the left, the plane of (q, r) on the right; computed without records."""
    result = Figure(figsize=(WIDTH, 3.1), layout="constrained")
    grid = result.add_gridspec(2, 3, width_ratios=(1, 1, 1.75))
    z = torch.tensor(LOGITS, dtype=torch.float64)
    for place, (title, (name, parameters)) in enumerate(SHOWN.items()):
        axes = result.add_subplot(grid[divmod(place, 2)])
        _draw_bars(axes, sharmix.build_activation(name, **parameters)(z).numpy(), title, look(name).colour)
    _draw_plane(result.add_subplot(grid[:, 2]), z)
    return result


def _draw_bars(axes: Axes, p: np.ndarray, title: str, colour: str) -> None:
    places = np.arange(len(p))
    axes.bar(places[p > 0], p[p > 0], color=colour, edgecolor=colour, linewidth=1)  # an edge shows even the smallest
    zeros = places[p == 0]
    axes.plot(zeros, np.full(len(zeros), 0.02), linestyle="none", marker="x", color="0.35", markersize=5)
    axes.set_title(f"{title}: {len(zeros) or 'no'} zero{'' if len(zeros) == 1 else 's'}", loc="center")
    axes.set(xticks=[], yticks=[0, 0.5], ylim=(0, 0.75), xlabel="8 classes, × exactly 0" if len(zeros) else "8 classes")


def _draw_plane(axes: Axes, z: torch.Tensor) -> None:
    orders = torch.linspace(1, 2, STEPS, dtype=torch.float64)
    q, r = torch.meshgrid(orders, orders, indexing="xy")
    p = sharmix.sharmix(z.expand(STEPS, STEPS, -1), q[..., None], r[..., None])
    survivors = (p > 0).sum(-1).numpy()
    bounds = np.arange(1, len(z) + 2) - 0.5
    axes.pcolormesh(
        orders.numpy(),
        orders.numpy(),
        survivors,
        cmap="YlGnBu_r",  # few classes dark, as in the playground
        norm=BoundaryNorm(bounds, 256),
        rasterized=True,
    )
    for count in np.unique(survivors[COUNTED]):
        place = orders[survivors[COUNTED] == count].mean().item(), orders[COUNTED].item()
        colour = LIGHT_INK if count < 5 else DARK_INK
        axes.text(*place, str(count), color=colour, ha="center", va="center", weight="bold")
    line = np.linspace(1, 2, STEPS)
    axes.plot(line, 2 - 1 / line, color=DARK_INK, linewidth=1.5, linestyle="--")
    axes.text(1.62, 1.3, "r = 2 − 1/q", rotation=22, bbox=LABEL)
    axes.text(1.96, 1.05, "below, the output\ncan jump", ha="right", bbox=LABEL)
    for name, place in PINS.items():
        own = look(name)
        axes.plot(*place, own.marker, color=own.colour, markeredgecolor="white", markersize=10, clip_on=False, zorder=3)
        x, y, side = LABEL_PLACES[name]
        axes.annotate(NAMES[name], place, (x, y), textcoords="offset points", ha=side, va="center", bbox=LABEL)
    axes.grid(visible=False)
    axes.set(xlabel="q", ylabel="r", aspect="equal", xlim=(1, 2), ylim=(1, 2), xticks=[1, 1.5, 2], yticks=[1, 1.5, 2])
    axes.set_title(f"of {len(z)} classes, how many stay above 0", loc="center")
