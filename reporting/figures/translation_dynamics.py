"""Speeding Up Entmax, Figure 1: BLEU on dev by training step."""

from matplotlib.figure import Figure

from reporting.drawing import draw_against, label_lines, stack_of_panels
from reporting.figures import figure
from reporting.kept_runs import KeptRuns, count_seeds


@figure("translation_dynamics")
def draw_translation_dynamics(kept: KeptRuns) -> Figure:
    """One line for each run."""
    groups = kept.of_table("translation_bleu")
    result, [axes] = stack_of_panels(1, 3)
    draw_against(axes, groups, "steps", "dev/bleu")
    title = f"Multi30k De-En, {count_seeds(groups)}: softmax learns first"
    axes.set(title=title, xlabel="training steps", ylabel="BLEU on dev", ylim=(0, None))
    label_lines(result, [axes])
    return result
