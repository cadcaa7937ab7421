"""How pictures of the gallery look: the colours of our figures, in an order that keeps neighbours apart."""

from typing import Any

import matplotlib

from reporting.palette import LOOKS

STYLE = {
    "axes.prop_cycle": matplotlib.cycler(
        color=[
            LOOKS[name].colour
            for name in (
                "softmax",
                "sharmix_fixed",
                "entmax",
                "sharmix_learned",
                "normmax",
                "sparsemax",
                "entmax_learned",
            )
        ]
    ),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": "medium",
    "figure.constrained_layout.use": True,
    "figure.dpi": 110,
    "figure.figsize": (6, 3.8),
    "legend.frameon": False,
    "savefig.bbox": "standard",
}


def apply(gallery: dict[str, Any], file: str) -> None:
    """Set the style before each script, as sphinx-gallery calls it."""
    matplotlib.rcParams.update(STYLE)
