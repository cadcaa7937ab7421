"""Speeding Up Entmax, Figures 1 and 2: BLEU on dev by training step, and by time spent training."""

from matplotlib.figure import Figure

from reporting.drawing import draw_against, label_lines, stack_of_panels
from reporting.figures import figure
from reporting.kept_runs import KeptRuns, count_seeds


@figure("translation_dynamics")
def draw_translation_dynamics(kept: KeptRuns) -> Figure:
    """One line for each run."""
    groups = kept.of_table("translation_bleu")
    result, (by_step, by_time) = stack_of_panels(2, 2.6)
    draw_against(by_step, groups, "steps", "dev/bleu")
    draw_against(by_time, groups, "training_seconds", "dev/bleu", scale=1 / 60)
    by_step.set(xlabel="training steps", title=f"Multi30k De-En, {count_seeds(groups)}")
    by_time.set(xlabel="minutes of training, without measuring; lines as above")
    for axes in (by_step, by_time):
        axes.set_ylabel("BLEU on dev")
    label_lines(result, [by_step])  # by time, lines to labels would cross the panel: runs end at different minutes
    return result
