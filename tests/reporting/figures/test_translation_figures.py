"""Figures of translation: supports, thresholds and attention, of the project's own records."""

import numpy as np
import pytest

from reporting.figures.attention import draw_attention
from reporting.figures.speeding_up_entmax import draw_thresholds, draw_translation_support

OUTPUTS = {"softmax", "sparsemax", "entmax (α = 1.5)", "α-ReLU (α = 1.5)"}
OUTPUTS |= {f"SharMiX {kind} (1.25, 1.50)" for kind in ("fixed", "learned")}


def lines_of(axes):
    """Each line by its label; of the lines of one output only the first has one."""
    return {line.get_label(): line for line in axes.lines if line.get_label()[0] != "_"}


def test_supports_are_the_shares_with_at_most_so_many_tokens(kept):
    (axes,) = draw_translation_support(kept).axes
    assert set(lines_of(axes)) == OUTPUTS
    for name, row in (("softmax", "softmax"), ("sparsemax", "sparsemax")):
        runs = kept.selections["translation_bleu"].rows[row].records
        for limit, share in lines_of(axes)[name].get_xydata():
            measured = [record.metrics["dev"][f"support_to_{limit:.0f}"] for record in runs]
            assert share == pytest.approx(np.mean(measured))


@pytest.mark.medium
def test_thresholds_rise_in_colour_and_the_calibrated_is_black(kept):
    left, right = (lines_of(axes) for axes in draw_thresholds(kept).axes)
    given = [f"τ = {tau}" for tau in ("0", "0.1", "0.2", "0.3", "5", "10")]
    (calibrated,) = {*right} - {*given}
    assert [name for name in right if name != calibrated] == given
    assert list(left) == list(right)
    assert calibrated.startswith("calibrated: τ = ")
    assert right[calibrated].get_color() == "black"
    assert len({tuple(right[name].get_color()) for name in given}) == 6


def test_attention_shows_what_each_head_has_learned_and_where_it_started(kept):
    panels = draw_attention(kept).axes
    titles = ["SharMiX learned: q", "SharMiX learned: r", "α-entmax learned: α"]
    assert [axes.get_title(loc="left") for axes in panels][:3] == titles
    *kinds, start = panels[0].lines
    names = ["encoder, self-attention", "decoder, self-attention", "decoder, cross-attention"]
    assert [line.get_label() for line in kinds] == names
    assert len({line.get_color() for line in kinds}) == len({line.get_marker() for line in kinds}) == 3
    (record,) = kept.selections["attention"].rows["sharmix"].records
    reported = record.curves[record.epoch - 1]
    heads = sorted(value for name, value in reported.items() if "encoder" in name and name.endswith(".q"))
    assert sorted(kinds[0].get_ydata()) == pytest.approx(heads)
    assert list(start.get_ydata()) == [1.25, 1.25]
