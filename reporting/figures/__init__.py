"""The figures, drawn only from the committed records. `rebuild_figures` finds the files of this folder and draws all.

To add a figure, add a file to this folder with a function under `@figure("name")` that draws it from `KeptRuns`.
"""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from matplotlib.figure import Figure

from reporting.figures.drawing import save_figure, style
from reporting.records.kept_runs import KeptRuns, LeftOut

DrawFigure = Callable[[KeptRuns], Figure]

_FIGURES: dict[str, DrawFigure] = {}


def figure(name: str) -> Callable[[DrawFigure], DrawFigure]:
    """Register the decorated function as a figure; `name` is the name of its files.

    The function draws the figure from the kept runs, and raises `LeftOut` if it cannot.
    """

    def register(draw: DrawFigure) -> DrawFigure:
        _FIGURES[name] = style()(draw)
        return _FIGURES[name]

    return register


def all_figures() -> dict[str, DrawFigure]:
    """The function that draws each figure, by name."""
    for module in iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
    return dict(sorted(_FIGURES.items()))


def rebuild_figures(kept: KeptRuns) -> tuple[list[Path], list[str]]:
    """Draw every figure whose records are kept; replace the files under <results>/figures/.

    Returns the files written, and for each reason why figures are left out a line that names them.
    """
    files: list[Path] = []
    without: dict[str, list[str]] = {}
    for name, draw in all_figures().items():
        try:
            files += save_figure(draw(kept), kept.results / "figures", name)
        except LeftOut as reason:
            without.setdefault(str(reason), []).append(name)
    notices = [f"left out: {', '.join(names)}: {reason}" for reason, names in without.items()]
    return files, notices
