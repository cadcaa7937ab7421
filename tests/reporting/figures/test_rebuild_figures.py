"""How figures are found, drawn and written."""

import shutil

import pytest

from reporting import figures
from reporting.figures.beside_softmax import draw_learning_curves
from reporting.figures.figure2 import draw_figure2
from reporting.records.declaration import SETTINGS, TableError
from reporting.records.kept_runs import KeptRuns
from tests.reporting.synthetic_results import RESULTS, loaded


@pytest.fixture
def results(tmp_path):
    """The project's records of the balanced images alone."""
    (tmp_path / "records").mkdir()
    shutil.copy(RESULTS / "records" / "cifar100.jsonl", tmp_path / "records")
    return tmp_path


def only(monkeypatch, *draws):
    """Let these functions be all figures."""
    monkeypatch.setattr(figures, "all_figures", lambda: {draw.__name__.removeprefix("draw_"): draw for draw in draws})


@pytest.mark.medium
def test_the_same_records_give_the_same_bytes_and_text_stays_text(results, monkeypatch):
    only(monkeypatch, draw_figure2)
    files, _ = figures.rebuild_figures(KeptRuns.load(results))
    assert files == [results / "figures" / f"figure2.{end}" for end in ("svg", "pdf")]
    svg, pdf = first = [file.read_bytes() for file in files]
    assert pdf.startswith(b"%PDF")
    assert "CIFAR-100, 5 seeds" in svg.decode()
    again, _ = figures.rebuild_figures(KeptRuns.load(results))
    assert [file.read_bytes() for file in again] == first


@pytest.mark.medium
def test_figures_without_records_are_left_out_and_said_so(results, monkeypatch):
    monkeypatch.setattr(figures, "save_figure", lambda figure, folder, name: [folder / f"{name}.svg"])
    kept = KeptRuns.load(results)
    written, notices = figures.rebuild_figures(kept)
    names = [
        *("accuracy_sparsity", "figure1", "figure2", "learning_curves", "losses", "maps"),
        *("sparsity_by_fit", "survivors", "ternary"),
    ]
    assert written == [results / "figures" / f"{name}.svg" for name in names]
    assert [notice.split(": ")[1] for notice in notices] == [
        "attention, translation_dynamics, translation_support",
        "class_frequencies",
        "learning_rates",
        "length_generalisation",
        "thresholds",
    ]
    assert "python -m reporting collect multi30k" in notices[0]
    assert [axes.get_title(loc="left") for axes in draw_learning_curves(kept).axes] == [
        "CIFAR-100, balanced, 1 to 5 seeds"
    ]


@pytest.mark.medium
def test_an_unknown_training_set_is_one_clear_error(results):
    shutil.copytree(SETTINGS, results, dirs_exist_ok=True)
    text = (results / "tables.yaml").read_text("utf-8").replace("control: {table:", "even: {table:")
    (results / "tables.yaml").write_text(text, "utf-8")
    with pytest.raises(TableError, match="figure 2, 'Tiny ImageNet': there is no training set 'even'; there are"):
        loaded(results)
