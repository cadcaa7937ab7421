"""The paper's figures as our runs show them, from the committed records alone."""

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reporting.command import run_command
from reporting.declaration import Declaration, Panel, load_declaration, load_regimes
from reporting.groups import Group, style_groups
from reporting.map_figures import draw_losses, draw_maps
from reporting.panels import add_legend, draw_curves, draw_trade_off, save
from reporting.plane import draw_paths, draw_plane
from reporting.records import missing_records
from reporting.selection import Runs, Selection, final_epoch, select_all
from reporting.translation_figures import draw_dynamics, draw_heads, draw_supports, draw_thresholds

BAND = {"facecolor": "0.85", "edgecolor": "0.6", "hatch": "...", "linewidth": 0, "zorder": 0}


def rebuild(results: Path, *, allow_missing_seeds: bool = False, allow_mixed_code: bool = False) -> list[Path]:
    """Draw every figure under <results>/figures/, of the declared panels whose records are kept.

    Args:
        results: folder that holds tables.yaml, published/ and records/.
        allow_missing_seeds: draw the runs there are where declared seeds are missing.
        allow_mixed_code: draw records of different code or of uncommitted changes.

    Returns:
        The files written, PNG and SVG: figure1, accuracy_sparsity, learning_curves, figure2 where a panel has one of
        its regimes; of translation its dynamics, support, thresholds and attention; maps and losses, which need no
        records.

    Raises:
        TableError: for a wrong declaration, or records that are missing, mixed or ambiguous.
        RecordError: for records that cannot be read, or where no experiment has any.
    """
    declaration = load_declaration(results)
    regimes = load_regimes(results, declaration)
    selections = select_all(
        declaration, results, allow_missing_seeds=allow_missing_seeds, allow_mixed_code=allow_mixed_code
    )
    figures = _of_panels(declaration, selections, regimes) | _of_translation(declaration, selections)
    figures |= {"maps": draw_maps(), "losses": draw_losses()}
    return [path for name, figure in figures.items() for path in save(figure, results / "figures" / f"{name}.png")]


def _of_panels(
    declaration: Declaration, selections: dict[str, Selection], regimes: dict[str, dict[str, Any]]
) -> dict[str, Figure]:
    panels = [p for p in declaration.figures.panels if p.runs in selections and p.paths in selections]
    runs = style_groups([_labelled(declaration, panel.runs, selections) for panel in panels])
    paths = style_groups([_labelled(declaration, panel.paths, selections) for panel in panels])
    epochs = [final_epoch(declaration.tables[panel.runs], selections[panel.runs]) for panel in panels]
    if not panels:
        return {}
    figures = {
        "figure1": draw_figure1(panels, paths),
        "accuracy_sparsity": draw_accuracy_sparsity(panels, runs, epochs),
        "learning_curves": draw_learning_curves(panels, runs),
    }
    if of_regimes := [(panel, groups) for panel, groups in zip(panels, runs, strict=True) if panel.regime]:
        figures["figure2"] = draw_figure2(of_regimes, regimes)
    return figures


def _of_translation(declaration: Declaration, selections: dict[str, Selection]) -> dict[str, Figure]:
    figures = {}
    if (name := declaration.figures.translation) in selections:
        (groups,) = style_groups([_labelled(declaration, str(name), selections)])
        figures |= {"translation_dynamics": draw_dynamics(groups), "translation_support": draw_supports(groups)}
    if (name := declaration.figures.thresholds) in selections:
        (groups,) = style_groups([_labelled(declaration, str(name), selections)])
        figures["thresholds"] = draw_thresholds(groups)
    if (name := declaration.figures.attention) in selections:
        (groups,) = style_groups([_labelled(declaration, str(name), selections)])
        if (figure := draw_heads(groups)) is not None:
            figures["attention"] = figure
    return figures


def draw_figure1(panels: list[Panel], groups: list[list[Group]]) -> Figure:
    """The (q, r) plane with the path that each learned run took, a panel an experiment."""
    figure, axes = _row(len(panels), 4.4, 4.9)
    for panel, own, one in zip(panels, groups, axes, strict=True):
        draw_plane(one)
        draw_paths(one, own)
        one.set_title(panel.title)
    add_legend(figure, axes, columns=4)
    return figure


def draw_figure2(panels: list[tuple[Panel, list[Group]]], regimes: dict[str, dict[str, Any]]) -> Figure:
    """Sparsity and r by epoch, a column a regime, with the levels that the paper shows for ImageNet."""
    figure = Figure(figsize=(5.2 * len(panels), 7.4), layout="constrained")
    axes = figure.subplots(2, len(panels), squeeze=False, sharex="col", sharey="row")
    for (panel, groups), (above, below) in zip(panels, axes.T, strict=True):
        draw_curves(above, groups, "test/sparsity")
        draw_curves(below, groups, "r")
        _draw_fixed(below, groups)
        _draw_published(above, regimes[str(panel.regime)])
        above.set(title=_title(panel, groups), xlabel="", ylim=(-0.1, 1.05))
    axes[0, 0].set_ylabel("sparsity on test (share of exact zeros)")
    axes[1, 0].set_ylabel("r")
    add_legend(figure, axes.flat, columns=3)
    return figure


def draw_accuracy_sparsity(panels: list[Panel], groups: list[list[Group]], epochs: list[int | None]) -> Figure:
    """Test accuracy against sparsity, a panel an experiment, all runs of a panel at one epoch."""
    figure, axes = _row(len(panels), 4.4, 5.2)
    for panel, own, epoch, one in zip(panels, groups, epochs, axes, strict=True):
        draw_trade_off(one, own, epoch)
        one.set_title(_title(panel, own) if epoch is None else f"{_title(panel, own)}, epoch {epoch}")
    add_legend(figure, axes, columns=3)
    return figure


def draw_learning_curves(panels: list[Panel], groups: list[list[Group]]) -> Figure:
    """Test accuracy by epoch, a panel an experiment."""
    figure, axes = _row(len(panels), 4.4, 5.2)
    for panel, own, one in zip(panels, groups, axes, strict=True):
        draw_curves(one, own, "test/accuracy")
        one.set(title=_title(panel, own), ylabel="test accuracy")
    add_legend(figure, axes, columns=3)
    return figure


def _row(count: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(width * count, height), layout="constrained")
    return figure, list(figure.subplots(1, count, squeeze=False).flat)


def _title(panel: Panel, groups: list[Group]) -> str:
    seeds = max((len(group.runs) for group in groups), default=0)
    return f"{panel.title}, {seeds} seed{'' if seeds == 1 else 's'}"


def _draw_fixed(axes: Axes, groups: list[Group]) -> None:
    for group in groups:
        if (r := group.activation().get("r")) is not None and group.curves("r").empty:
            axes.axhline(r, color=group.style["color"], linestyle=group.style["linestyle"], linewidth=1)


def _draw_published(axes: Axes, levels: dict[str, Any]) -> None:
    if "sparsity_low" in levels:
        low, high = levels["sparsity_low"], levels["sparsity_high"]
        axes.axhspan(low, high, **BAND)
        axes.text(axes.get_xlim()[0], high + 0.01, f" published, ImageNet: {low} to {high}", va="bottom", fontsize=8)
    else:
        first, last = levels["zero_from_epoch"]
        level = levels["sparsity_final"]
        low, high = level - 0.02, level + 0.02  # wide enough to be seen
        end = max(axes.get_xlim()[1], last)
        axes.fill_between([first, end], low, high, **BAND)
        axes.text(first, low - 0.01, f"published, ImageNet: {level} from epoch {first} or {last}", va="top", fontsize=8)


def _labelled(declaration: Declaration, table: str, selections: dict[str, Selection]) -> dict[str, Runs]:
    labels = declaration.tables[table].labels()
    return {labels[row]: runs for row, runs in selections[table].rows.items() if runs}


def _left_out(results: Path) -> list[str]:
    declaration = load_declaration(results)
    panels = declaration.figures.panels
    experiments = {panel.title: declaration.tables[panel.runs].experiment for panel in panels}
    own = {name: getattr(declaration.figures, name) for name in ("translation", "thresholds", "attention")}
    experiments |= {title: declaration.tables[table].experiment for title, table in own.items() if table}
    missing = {title: missing_records(results, experiment) for title, experiment in experiments.items()}
    return [f"left out: {title}: {message}" for title, message in missing.items() if message]


def main(arguments: list[str] | None = None) -> None:
    """Command line: draw the figures."""
    run_command("reporting.figures", __doc__, rebuild, _left_out, arguments)


if __name__ == "__main__":
    main()
