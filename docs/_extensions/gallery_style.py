"""How pictures of the gallery look: as those of the tutorials."""

from pathlib import Path
from typing import Any

import matplotlib

STYLE = Path(__file__).parents[1] / "tutorials" / "matplotlibrc"


def apply(gallery: dict[str, Any], file: str) -> None:
    """Set the style before each script, as sphinx-gallery calls it."""
    matplotlib.rc_file(STYLE, use_default_template=False)
