"""The plane of the orders (q, r)."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from reporting.groups import label_runs, style_groups
from reporting.plane import draw_paths, draw_plane
from tests.reporting.synthetic_records import as_read, make_record
from tests.reporting.synthetic_results import image_records


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


def test_a_path_starts_where_the_run_did_and_its_line_tells_the_objective():
    alpha = make_record("entmax_learned", 21, "cifar100", data={"augmentation": "none"}, alpha=1.5)
    records = [as_read(record) for record in [*image_records("cifar100"), alpha]]
    (groups,) = style_groups([label_runs(records)])
    axes = Figure().subplots()
    draw_paths(axes, groups)
    paths = {line.get_label(): line for line in axes.lines if not line.get_label().startswith("_")}
    learned = ["SharMiX learned: Fenchel–Young", "SharMiX learned: Brier", "SharMiX learned: log score"]
    assert set(paths) == {*learned, "entmax learned: Fenchel–Young"}
    assert len({paths[name].get_linestyle() for name in learned}) == 3
    path = np.column_stack(paths[learned[0]].get_data())
    assert path == pytest.approx(np.array([[1.25 + 0.01 * epoch, 1.5 + 0.01 * epoch] for epoch in range(5)]))
    q, r = paths["entmax learned: Fenchel–Young"].get_data()
    assert q.tolist() == r.tolist()
    rings = [line for line in axes.lines if line.get_marker() == "o" and line.get_fillstyle() == "none"]
    assert {line.get_xydata()[0].tolist()[0] for line in rings} == {1.25, 1.5}
