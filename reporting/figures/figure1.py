"""Figure 1: the plane of the orders (q, r), with the path that each learned run took."""

from matplotlib.figure import Figure

from reporting.drawing import add_legend, grid_of_panels
from reporting.figures import figure
from reporting.kept_runs import KeptRuns, count_seeds
from reporting.plane import draw_paths, draw_plane


@figure("figure1")
def draw_figure1(kept: KeptRuns) -> Figure:
    """One panel for each experiment."""
    result, axes, place = grid_of_panels(len(kept.panels), 3.6)
    for panel, one in zip(kept.panels, axes, strict=True):
        draw_plane(one)
        draw_paths(one, panel.paths)
        one.set_title(f"{panel.title}, {count_seeds(panel.paths)}")
    add_legend(result, axes, 2, place)
    return result
