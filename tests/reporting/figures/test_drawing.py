"""What figures share."""

import numpy as np
import pytest

from reporting.figures.drawing import LABEL_HEIGHT, label_lines, label_share, save_figure, stack_of_panels
from reporting.look.palette import look, on_dark


def test_labels_of_lines_that_meet_do_not_overlap_and_keep_their_order():
    figure, (axes,) = stack_of_panels(1, 3)
    for number in range(7):  # lines that end at almost one point
        axes.plot([0, 1], [number, 3 + number / 100], label=f"line {number}")
    axes.plot([0, 1], [0, 0], label="_without a label")
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


def test_a_line_that_is_never_in_its_panel_has_no_label():
    figure, panels = stack_of_panels(2, 3)
    for axes in panels:
        axes.plot([0, 1], [8, 9], label="far above")
        axes.set_ylim(0, 2)
    panels[0].plot([0, 1], [1, 1], label="inside")
    label_lines(figure, panels)
    assert [[text.get_text() for text in axes.texts] for axes in panels] == [["inside"], []]


def test_an_svg_follows_the_theme_of_its_page(tmp_path):
    figure, (axes,) = stack_of_panels(1, 3)
    axes.plot([0, 1], [0, 1], color="black", label="softmax")
    axes.plot([0, 1], [1, 0], color=look("normmax").colour, label="normmax")
    axes.set_title("a title")
    svg = save_figure(figure, tmp_path, "one")[0].read_text("utf-8")
    assert "#000000" not in svg
    assert "stroke: currentColor; stroke-opacity: 1;" in svg
    assert f"stroke: #882255; stroke: light-dark(#882255, {on_dark('#882255')})" in svg
    assert "fill: #ffffff" not in svg


@pytest.mark.parametrize(("low", "high"), [(0.4, 0.999), (0.001, 1.0)])
def test_the_axis_of_a_share_ends_at_0_and_1(low, high):
    _, (axes,) = stack_of_panels(1, 3)
    axes.plot([0, 1], [low, high])
    label_share(axes, "accuracy")
    assert 0 <= axes.get_ylim()[0] <= low <= high <= axes.get_ylim()[1] <= 1
