"""The notes under a table."""

from reporting.notes import table_notes
from tests.reporting.synthetic_records import changed, keep_records
from tests.reporting.synthetic_results import loaded, small_records


def notes_of(kept, table):
    return "\n".join(table_notes(kept.declaration, kept.declaration.tables[table], kept.selections[table]))


def test_the_selected_epochs_and_how_scores_are_computed_are_said(kept):
    bleu = notes_of(kept, "translation_bleu")
    for text in ("softmax 10, 9", "largest dev/bleu", "BLEU nrefs:1|case:mixed|eff:no|tok:13a"):
        assert text in bleu
    assert "while an epoch trains" not in bleu
    assert "largest dev/bleu" not in notes_of(kept, "thresholds")  # it shows given epochs alone


def test_a_long_tail_says_how_its_groups_were_made(built_short):
    text = " ".join((built_short / "tables" / "tail.md").read_text("utf-8").split())
    assert "many > 100, few < 20 training examples; 3 many, 7 few" in text
    assert "largest class has 500 training examples, the smallest 5" in text
    assert "One seed (1)" in text


def test_training_metrics_measured_while_an_epoch_trains_are_said_so(small):
    for value, said in (("running", True), ("evaluated", False)):
        keep_records(small, [changed(record, data={"train_metrics": value}) for record in small_records()])
        assert ("while an epoch trains" in notes_of(loaded(small), "small")) is said
