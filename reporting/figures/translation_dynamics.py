"""Speeding Up Entmax, Figures 1 and 2: BLEU on dev by training step, and by time spent training."""

from matplotlib.figure import Figure

from reporting.drawing import add_legend, draw_against
from reporting.figures import figure
from reporting.kept_runs import KeptRuns


@figure("translation_dynamics")
def draw_translation_dynamics(kept: KeptRuns) -> Figure:
    """One line for each run."""
    groups = kept.of_table("translation_bleu")
    result = Figure(figsize=(10, 4.6), layout="constrained")
    by_step, by_time = result.subplots(1, 2, sharey=True)
    draw_against(by_step, groups, "steps", "dev/bleu")
    draw_against(by_time, groups, "training_seconds", "dev/bleu", scale=1 / 60)
    by_step.set(xlabel="training steps", ylabel="BLEU on dev")
    by_time.set(xlabel="minutes of training, without measuring")
    add_legend(result, [by_step], columns=4)
    return result
