"""Tables and figures of Speeding Up Entmax, from made-up records."""

import shutil
from pathlib import Path

import pandas as pd
import pytest
import torch

from reporting import figures, tables
from reporting.map_figures import losses
from reporting.records import RecordError, read_records
from tests.reporting.synthetic_records import keep_records, make_record, make_translation_record

RESULTS = Path(__file__).resolve().parents[2] / "results"
THRESHOLDS = (None, 0.0, 0.1, 0.2, 0.3, 5.0, 10.0)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """The project's declaration, with made-up records of translation alone."""
    shutil.copy(RESULTS / "tables.yaml", tmp_path)
    shutil.copytree(RESULTS / "published", tmp_path / "published")
    layers = [
        make_translation_record("softmax"),
        make_translation_record("sparsemax", bleu=(10.0, 20.0, 31.256)),
        make_translation_record("entmax", alpha=1.5),
        make_translation_record("alpha_relu", alpha=1.5),
        make_translation_record("sharmix_fixed", q=1.25, r=1.5),
        make_translation_record("sharmix_learned", q=1.25, r=1.5, objective="fenchel_young"),
        make_translation_record("softmax", attention="entmax_learned", bleu=(99.0,)),
        make_translation_record("softmax", attention="sharmix_learned", bleu=(55.0,)),
    ]
    keep_records(tmp_path, layers, "multi30k")
    early = [
        make_translation_record("alpha_relu", "multi30k_early", bleu=(1.0, 2.0, 3.0, 4.0, 5.0, 6.0), alpha=1.5, tau=tau)
        for tau in THRESHOLDS
    ]
    keep_records(tmp_path, early, "multi30k_early")
    return tmp_path


def test_published_numbers_stand_beside_ours_and_never_in_one_column(results: Path) -> None:
    tables.rebuild(results)
    tidy = pd.read_csv(results / "tables" / "translation_bleu.csv")
    assert set(tidy[tidy["source"] == "published"]["split"]) == {"iwslt14", "wmt14"}
    assert set(tidy[tidy["source"] == "ours"]["split"]) == {"dev", "test"}
    relu = tidy[(tidy["row"] == "α-ReLU (α = 1.5)") & (tidy["metric"] == "bleu")].set_index(["source", "split"])["mean"]
    assert relu.to_dict() == {
        ("published", "iwslt14"): 37.3,
        ("published", "wmt14"): 28.6,
        ("ours", "test"): 31.0,  # of the epoch with the best dev BLEU
        ("ours", "dev"): 30.0,
    }
    text = (results / "tables" / "translation_bleu.md").read_text("utf-8")
    header, _, *lines = (line for line in text.splitlines() if line.startswith("|"))
    titles = [title.strip() for title in header.split("|")[2:-1]]
    assert titles[:4] == ["published, iwslt14 BLEU", "published, wmt14 BLEU", "ours, test BLEU", "ours, test chrF"]
    cells = {line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[2:-1]] for line in lines}
    assert cells["sparsemax"][:4] == ["35.5", "26.6", "32.26", "50.00"]
    assert cells["SharMiX fixed (1.25, 1.50)"][:3] == ["–", "–", "31.00"]
    assert "softmax 2" in text
    assert "sparsemax 3" in text
    assert "largest dev/bleu" in text
    assert "BLEU tok:13a" in text
    assert "while an epoch trains" not in text


def test_the_table_of_empty_translations(results: Path) -> None:
    tables.rebuild(results)
    text = (results / "tables" / "translation_empty.md").read_text("utf-8")
    softmax = next(line for line in text.splitlines() if line.startswith("| softmax"))
    assert [cell.strip() for cell in softmax.split("|")[2:7]] == ["0.0750", "0.2980", "0.0625", "0.5000", "0.5000"]


def test_the_table_of_thresholds_has_a_row_for_each(results: Path) -> None:
    tables.rebuild(results)
    tidy = pd.read_csv(results / "tables" / "thresholds.csv")
    found = tidy[tidy["metric"] == "tau"].set_index("row")["mean"]
    assert found.to_dict() == {
        "calibrated": 0.7, "τ = 0": 0.0, "τ = 0.1": 0.1, "τ = 0.2": 0.2, "τ = 0.3": 0.3, "τ = 5": 5.0, "τ = 10": 10.0
    }  # fmt: skip


def test_the_table_of_attention_tells_runs_apart_by_more_than_their_activation(results: Path) -> None:
    tables.rebuild(results)
    tidy = pd.read_csv(results / "tables" / "attention.csv")
    found = tidy[(tidy["metric"] == "bleu") & (tidy["split"] == "dev")].set_index("row")["mean"]
    assert found.to_dict() == {"softmax": 30.0, "α-entmax learned": 99.0, "SharMiX learned": 55.0}
    text = (results / "tables" / "attention.md").read_text("utf-8")
    assert "softmax 2; α-entmax learned 1; SharMiX learned 1." in text
    assert "largest dev/bleu" not in (results / "tables" / "thresholds.md").read_text("utf-8")


def test_the_figures_show_every_run(results: Path) -> None:
    written = {file.stem for file in figures.rebuild(results)}
    assert {"translation_dynamics", "translation_support", "thresholds", "attention", "maps", "losses"} <= written

    def text_of(name: str) -> str:
        return (results / "figures" / f"{name}.svg").read_text("utf-8")

    dynamics, support = text_of("translation_dynamics"), text_of("translation_support")
    thresholds, attention = text_of("thresholds"), text_of("attention")
    for text in ("softmax", "sparsemax", "α-ReLU (α = 1.5)", "SharMiX learned (1.25, 1.50)"):
        assert text in dynamics
        assert text in support
    assert "BLEU on dev" in dynamics
    assert "minutes of training" in dynamics
    assert "decoder 1 cross" in attention
    assert "q: a point a head, a line where they start" in attention
    assert "calibrated: τ = 0.7" in thresholds
    for tau in ("τ = 0<", "τ = 0.3<", "τ = 10<"):
        assert tau in thresholds


def test_a_translation_record_without_bleu_on_dev_is_refused(results: Path) -> None:
    record = make_translation_record()
    del record["metrics"]["dev"]["bleu"]
    keep_records(results, [record], "multi30k")
    with pytest.raises(RecordError, match=r"metrics\.dev\.bleu is missing"):
        read_records(results, "multi30k")


def test_a_classification_record_still_needs_its_metrics(results: Path) -> None:
    record = make_record(experiment="digits")
    del record["metrics"]["train"]["macro_f1"]
    keep_records(results, [record], "digits")
    with pytest.raises(RecordError, match=r"metrics\.train\.macro_f1 is missing"):
        read_records(results, "digits")


def test_of_two_classes_the_loss_of_sparsemax_is_a_quarter_of_hubers() -> None:
    margin = torch.linspace(-4, 4, 101, dtype=torch.float64)
    shown = {name: values for name, (values, _) in losses(margin).items()}
    torch.testing.assert_close(4 * shown["sparsemax"], shown["Huber (modified, for classes)"])
    torch.testing.assert_close(shown["logistic (softmax)"], torch.log1p(torch.exp(-margin)))
    assert (shown["hinge"] >= shown["sparsemax"] - 1e-12).all()
