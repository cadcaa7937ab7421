"""The figures, drawn from kept records alone."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from reporting.declaration import Panel, TableError
from reporting.figures import (
    draw_accuracy_sparsity,
    draw_figure1,
    draw_figure2,
    draw_learning_curves,
    main,
    rebuild,
)
from reporting.groups import label_runs, style_groups
from reporting.plane import draw_plane
from tests.reporting.synthetic_records import keep_records, make_record

RESULTS = Path(__file__).parents[2] / "results"
PAPER = {"augmentation": "none"}
LEVELS = {
    "long_tailed": {"sparsity_low": 0.91, "sparsity_high": 0.95},
    "balanced": {"sparsity_final": 0.0, "zero_from_epoch": [4, 5]},
}


def image_records(experiment, epochs=4):
    shots = {f"{group}_{metric}": 0.2 for group in ("many", "medium", "few") for metric in ("accuracy", "sparsity")}
    test = {"accuracy": 0.3, "sparsity": 0.1, **shots}
    start = {"q": 1.25, "r": 1.5}
    configured = [
        ("softmax", {}),
        ("sparsemax", {}),
        ("entmax", {"alpha": 1.5}),
        ("sharmix_fixed", start),
        *(("sharmix_learned", start | {"objective": objective}) for objective in ("fenchel_young", "brier", "log")),
    ]
    records = [make_record(name, 21, experiment, test, None, epochs, PAPER, **values) for name, values in configured]
    augmented = make_record("softmax", 21, experiment, test, None, epochs, {"augmentation": "standard"})
    return [*records, augmented]


def grouped(*experiments):
    return style_groups([label_runs(records) for records in experiments])


def panel(title="A title", regime=None):
    return Panel(title=title, runs="any", paths="any", regime=regime)


def texts(axes):
    return [text.get_text() for text in axes.texts]


@pytest.fixture
def results(tmp_path):
    """The project's declaration, with made-up records of the balanced images alone."""
    shutil.copy(RESULTS / "tables.yaml", tmp_path)
    shutil.copytree(RESULTS / "published", tmp_path / "published")
    keep_records(tmp_path, image_records("cifar100"), "cifar100")
    return tmp_path


def test_the_same_records_give_the_same_bytes_and_text_stays_text(results):
    files = rebuild(results)
    names = {"figure1", "figure2", "accuracy_sparsity", "learning_curves", "maps", "losses"}
    assert {file.name for file in files} == {f"{name}.{end}" for name in names for end in ("png", "svg")}
    first = {file: file.read_bytes() for file in files}
    assert all(content.startswith(b"\x89PNG") for file, content in first.items() if file.suffix == ".png")
    vector = (results / "figures" / "figure2.svg").read_text("utf-8")
    assert "SharMiX learned (1.25, 1.50)" in vector
    assert "published, ImageNet: 0.0 from epoch 4 or 5" in vector
    assert {file: file.read_bytes() for file in rebuild(results)} == first


def test_the_committed_records_can_be_drawn(tmp_path, capsys):
    for part in ("records", "published"):
        shutil.copytree(RESULTS / part, tmp_path / part)
    shutil.copy(RESULTS / "tables.yaml", tmp_path)
    main(["--results", str(tmp_path)])
    printed = capsys.readouterr().out
    assert str(tmp_path / "figures" / "figure1.png") in printed
    assert "Airline Tweets" in (tmp_path / "figures" / "figure1.svg").read_text("utf-8")


def test_panels_without_records_are_left_out_and_said_so(results, capsys):
    keep_records(results, image_records("cifar100")[1:], "cifar100")
    main(["--results", str(results), "--allow-missing-seeds"])
    notices = [line for line in capsys.readouterr().out.splitlines() if line.startswith("left out: ")]
    left_out = ["Airline Tweets", "CIFAR-100-LT, long-tailed", "translation", "thresholds", "attention"]
    assert [notice.split(": ")[1] for notice in notices] == left_out
    assert "python -m reporting.records --experiment cifar100_lt" in notices[1]
    assert "CIFAR-100-LT" not in (results / "figures" / "learning_curves.svg").read_text("utf-8")


def test_without_any_records_and_with_missing_runs_there_is_one_clear_error(results):
    keep_records(results, image_records("cifar100")[1:], "cifar100")
    with pytest.raises(TableError, match="softmax, seed 21"):
        rebuild(results)
    with pytest.raises(SystemExit, match="error: these runs have no record"):
        main(["--results", str(results)])
    (results / "records" / "cifar100.jsonl").unlink()
    with pytest.raises(SystemExit, match=r"cifar100\.jsonl: .*run the experiment"):
        main(["--results", str(results)])


def test_an_unknown_regime_is_one_clear_error(results):
    text = (results / "tables.yaml").read_text("utf-8").replace("regime: balanced", "regime: even")
    (results / "tables.yaml").write_text(text, "utf-8")
    with pytest.raises(TableError, match="there is no regime 'even'; there are"):
        rebuild(results)


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
    alpha = make_record("entmax_learned", 21, "cifar100", data=PAPER, alpha=1.5)
    figure = draw_figure1([panel()], grouped([*image_records("cifar100"), alpha]))
    (axes,) = figure.axes
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


def test_figure_2_shows_both_regimes_beside_the_published_levels():
    groups = grouped(image_records("cifar100"), image_records("cifar100_lt"))
    panels = [panel("Balanced", "balanced"), panel("Long-tailed", "long_tailed")]
    figure = draw_figure2(list(zip(panels, groups, strict=True)), LEVELS)
    balanced, tail, r_balanced, _ = figure.axes
    assert [axes.get_title() for axes in (balanced, tail)] == ["Balanced, 1 seed", "Long-tailed, 1 seed"]
    assert texts(balanced) == ["published, ImageNet: 0.0 from epoch 4 or 5"]
    assert [text.strip() for text in texts(tail)] == ["published, ImageNet: 0.91 to 0.95"]
    (band,) = tail.patches
    assert (band.get_y(), band.get_height()) == (0.91, pytest.approx(0.04))
    curves = {line.get_label(): line.get_ydata() for line in balanced.lines}
    assert len(curves) == 8
    assert curves["SharMiX learned (1.25, 1.50, log)"] == pytest.approx([0.1] * 4)
    learned = {line.get_label(): line.get_ydata() for line in r_balanced.lines if line.get_label().startswith("S")}
    assert len(learned) == 3
    assert learned["SharMiX learned (1.25, 1.50)"] == pytest.approx([1.51, 1.52, 1.53, 1.54])
    (fixed,) = (line for line in r_balanced.lines if not line.get_label().startswith("S"))
    assert list(fixed.get_ydata()) == [1.5, 1.5]


def test_runs_of_different_lengths_are_compared_at_one_epoch():
    longer = make_record("softmax", 21, "cifar100", {"accuracy": 0.5}, epochs=8, data=PAPER)
    shorter = make_record("sparsemax", 21, "cifar100", {"accuracy": 0.4}, epochs=4, data=PAPER)
    figure = draw_accuracy_sparsity([panel("Images")], grouped([longer, shorter]), [4])
    (axes,) = figure.axes
    assert axes.get_title() == "Images, 1 seed, epoch 4"
    heights = {round(float(point[1]), 6) for scatter in axes.collections for point in np.asarray(scatter.get_offsets())}
    assert heights == {0.4, 0.5 - (0.1 / 4 - 0.1 / 8)}


def test_a_band_spans_the_seeds():
    records = [make_record("softmax", seed, "cifar100", {"accuracy": 0.5 + 0.01 * seed}) for seed in (1, 2, 3)]
    figure = draw_learning_curves([panel()], grouped(records))
    (axes,) = figure.axes
    assert axes.get_title() == "A title, 3 seeds"
    (band,) = axes.collections
    at_the_end = {round(float(y), 6) for x, y in band.get_paths()[0].vertices if x == 3}
    assert at_the_end == {0.51, 0.53}
    assert axes.lines[0].get_ydata()[-1] == pytest.approx(0.52)
