"""How pictures of the gallery look: as those of the tutorials, and dark on a dark page."""

from pathlib import Path
from typing import Any

import matplotlib
from sphinx_gallery.scrapers import matplotlib_scraper

STYLE = Path(__file__).parents[1] / "tutorials" / "matplotlibrc"
# The colours of look.css; black lines and texts, and white paper, are what the pictures leave to the page.
DARK = """@media (prefers-color-scheme: dark) {
  :is(path, use)[style*="fill: #ffffff"] { fill: #1a2024 !important; }
  [style*="stroke: #000000"] { stroke: #e8ecee !important; }
  text:not([style*="fill"]), use[style^="stroke: #000000"] { fill: #e8ecee; }
}"""


def apply(gallery: dict[str, Any], file: str) -> None:
    """Set the style before each script, as sphinx-gallery calls it."""
    matplotlib.rc_file(STYLE, use_default_template=False)
    matplotlib.rcParams |= {"axes.titlesize": "medium", "svg.fonttype": "none", "svg.hashsalt": "sharmix"}


def scrape(block: Any, variables: dict[str, Any], gallery: dict[str, Any]) -> str:
    """Write a script's figures as SVG, as sphinx-gallery calls it."""
    text = matplotlib_scraper(block, variables, gallery, format="svg", metadata={"Date": None})
    for path in variables["image_path_iterator"].paths:
        file = Path(path).with_suffix(".svg")
        file.write_text(file.read_text("utf-8").replace("</style>", f"{DARK}</style>", 1), "utf-8")
    return text
