"""Figures of translation: dynamics, supports, thresholds and attention."""

import pytest

from reporting.figures.attention import draw_attention
from reporting.figures.thresholds import draw_thresholds
from reporting.figures.translation_dynamics import draw_translation_dynamics
from reporting.figures.translation_support import draw_translation_support
from reporting.kept_runs import LeftOut
from tests.reporting.synthetic_results import loaded, translation_records, write_projects

OUTPUTS = {"softmax", "sparsemax", "entmax (α = 1.5)", "α-ReLU (α = 1.5)"}
OUTPUTS |= {f"SharMiX {kind} (1.25, 1.50)" for kind in ("fixed", "learned")}


def points(axes):
    """Points of each line by its label; of lines of one output only the first has one."""
    return {line.get_label(): line.get_xydata().tolist() for line in axes.lines if line.get_label()[0] != "_"}


def test_dynamics_show_every_run_by_step_and_by_minute(kept):
    by_step, by_time = draw_translation_dynamics(kept).axes
    assert set(points(by_step)) == set(points(by_time)) == OUTPUTS
    assert len(by_step.lines) == len(by_time.lines) == 12  # three outputs have three seeds, three have one
    assert points(by_step)["softmax"] == [[100, 8], [200, 28], [300, 18]]
    assert points(by_time)["softmax"] == [[1, 8], [2, 28], [3, 18]]
    for axes in (by_step, by_time):
        (colour,) = [line.get_color() for line in axes.lines if line.get_label() == "softmax"]
        assert [line.get_ydata()[-1] for line in axes.lines if line.get_color() == colour] == [18, 20, 25]
    assert (by_step.get_ylabel(), by_time.get_xlabel()) == (
        "BLEU on dev",
        "minutes of training, without measuring; lines as above",
    )


def test_supports_are_the_shares_with_at_most_so_many_tokens(kept):
    (axes,) = draw_translation_support(kept).axes
    assert set(points(axes)) == OUTPUTS
    assert points(axes)["sparsemax"] == [[1, 0.25], [2, 0.5], [4, 0.75], [8, 1.0]]
    assert points(axes)["softmax"][0] == [1, 0.3125]  # the mean of 0.125, 0.25 and 0.5625


def test_thresholds_rise_in_colour_and_the_calibrated_is_black(kept):
    left, right = draw_thresholds(kept).axes
    given = [f"τ = {tau}" for tau in ("0", "0.1", "0.2", "0.3", "5", "10")]
    assert list(points(left)) == list(points(right)) == [*given[:4], "calibrated: τ = 0.7", *given[4:]]
    colours = {line.get_label(): line.get_color() for line in right.lines}
    assert colours["calibrated: τ = 0.7"] == "black"
    assert len({tuple(colours[name]) for name in given}) == 6
    assert points(right)["τ = 10"] == [[100 * epoch, epoch] for epoch in range(1, 7)]


def test_attention_shows_what_each_head_has_learned_and_where_it_started(kept, tmp_path):
    q, r = draw_attention(kept).axes
    assert [axes.get_title(loc="left") for axes in (q, r)] == ["SharMiX learned: q", "SharMiX learned: r"]
    *kinds, start = q.lines
    names = ["encoder, self-attention", "decoder, self-attention", "decoder, cross-attention"]
    assert [line.get_label() for line in kinds] == names
    assert len({line.get_color() for line in kinds}) == len({line.get_marker() for line in kinds}) == 3
    assert [list(line.get_xdata()) for line in kinds] == [[0, 0], [1, 1], [2, 2]]
    assert [list(line.get_ydata()) for line in kinds] == [[1.5, 1.5]] * 3
    assert list(start.get_ydata()) == [1.25, 1.25]

    records = [r for r in translation_records() if r["config"]["model"]["attention"]["name"] != "sharmix_learned"]
    without = loaded(write_projects(tmp_path, multi30k=records), allow_missing_seeds=True)
    with pytest.raises(LeftOut, match="no attention head learns an order"):
        draw_attention(without)
