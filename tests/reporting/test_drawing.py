"""What figures share."""

import numpy as np
import pytest

from reporting.drawing import LABEL_HEIGHT, label_lines, stack_of_panels


@pytest.fixture
def meeting():
    """Seven lines that end at almost one point."""
    figure, (axes,) = stack_of_panels(1, 3)
    for number in range(7):
        axes.plot([0, 1], [number, 3 + number / 100], label=f"line {number}")
    axes.plot([0, 1], [0, 0], label="_without a label")
    return figure, axes


def test_labels_of_lines_that_meet_do_not_overlap_and_keep_their_order(meeting):
    figure, axes = meeting
    label_lines(figure, [axes])
    assert [text.get_text() for text in axes.texts] == [f"line {number}" for number in range(7)]
    heights = np.array([text.xyann[1] for text in axes.texts]) * axes.bbox.height / figure.dpi * 72
    assert np.diff(heights).min() >= LABEL_HEIGHT - 1e-6
    end = axes.transAxes.inverted().transform(axes.transData.transform([1, 3.03]))[1]
    assert np.mean([text.xyann[1] for text in axes.texts]) == pytest.approx(end, abs=0.01)  # around their lines


def test_a_line_that_leaves_its_panel_is_labelled_where_it_does():
    figure, (axes,) = stack_of_panels(1, 3)
    axes.plot([0, 1, 2, 3], [0, 1, 9, np.nan], label="leaves")
    axes.set_ylim(0, 2)
    label_lines(figure, [axes])
    assert tuple(axes.texts[0].xy) == (1, 1)
