"""The plane of the orders (q, r)."""

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

import sharmix
from reporting.figures.figure1 import draw_paths, draw_plane
from reporting.look.palette import look
from reporting.records.groups import label_runs
from tests.reporting.synthetic_records import as_read, grouped, make_record


def test_the_plane_shades_where_the_entropy_is_not_concave():
    axes = Figure().subplots()
    draw_plane(axes)
    (shaded,) = (collection.get_paths()[0] for collection in axes.collections)
    # Of the paper's nine starts, the two with r < 2 − 1/q.
    starts = [(q, r) for q in (1.25, 1.5, 1.75) for r in (1.25, 1.5, 1.75)]
    assert [start for start in starts if shaded.contains_point(start)] == [(1.5, 1.25), (1.75, 1.25)]
    lines = [np.column_stack(line.get_data()) for line in axes.lines]
    assert any(np.array_equal(line[:, 0], line[:, 1]) and len(line) > 1 for line in lines)  # r = q
    assert [[1.0, 1.0]] in [line.tolist() for line in lines]
    assert [[2.0, 2.0]] in [line.tolist() for line in lines]


def test_normmax_has_its_line_and_a_pin_where_its_temperature_is_that_of_the_plane():
    axes = Figure().subplots()
    draw_plane(axes)
    (line,) = (
        line for line in axes.lines if line.get_label() == "(q, r) of α-normmax,\nwhose temperature is q − 1, not 1"
    )
    z = torch.tensor([1.0, 0.8, 0.5, -2.0], dtype=torch.float64)
    for q, r in line.get_xydata()[1:]:
        torch.testing.assert_close(sharmix.sharmix(z, q, r, temperature=q - 1), sharmix.normmax(z, alpha=q))
    (pin,) = (one for one in axes.lines if one.get_marker() == look("normmax").marker)
    q, r = pin.get_xydata()[0]
    torch.testing.assert_close(sharmix.sharmix(z, q, r), sharmix.normmax(z, alpha=q))


def test_the_path_of_a_learned_normmax_lies_on_the_border():
    record = make_record("normmax", 21, "cifar100", epochs=2, alpha=1.5)
    for row, alpha in zip(record["curves"], (1.6, 2.0), strict=True):
        row["alpha"] = alpha
    (runs,) = label_runs([as_read(record)]).values()
    (path,) = runs.paths()
    assert path.to_numpy() == pytest.approx(np.array([[1.5, 4 / 3], [1.6, 1.375], [2.0, 1.5]]))


def test_a_path_starts_where_the_run_did_and_its_line_tells_the_objective(kept):
    alpha = make_record("entmax_learned", alpha=1.5)
    groups = [*kept.of_table("table2"), *grouped([alpha])[0]]
    axes = Figure().subplots()
    draw_paths(axes, groups)
    paths = {line.get_label(): line for line in axes.lines if not line.get_label().startswith("_")}
    learned = ["SharMiX learned: Fenchel–Young", "SharMiX learned: Brier score", "SharMiX learned: log score"]
    assert set(paths) == {*learned, "entmax learned: Fenchel–Young"}
    assert len({paths[name].get_linestyle() for name in learned}) == 3
    record = kept.selections["table2"].rows["learned"].records[-1]
    path = np.array([[1.25, 1.5], *([row["q"], row["r"]] for row in record.curves)])
    assert paths[learned[0]].get_xydata() == pytest.approx(path)
    q, r = paths["entmax learned: Fenchel–Young"].get_data()
    assert q.tolist() == r.tolist()
    rings = [line for line in axes.lines if line.get_marker() == "o" and line.get_fillstyle() == "none"]
    assert {line.get_xydata()[0].tolist()[0] for line in rings} == {1.25, 1.5}
