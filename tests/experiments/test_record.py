"""The record of a run: what it accepts, what it refuses, and that nothing of it is lost."""

import json

import pytest

from experiments.record import Record, RecordError, by_split, read_record
from tests.reporting.synthetic_records import as_read, make_record, make_translation_record
from tests.reporting.synthetic_results import RESULTS


def test_every_committed_record_is_read_and_written_to_the_letter():
    changed = []
    for file in (RESULTS / "records").iterdir():
        for number, line in enumerate(file.read_text("utf-8").splitlines(), 1):
            place = f"{file.name}, line {number}"
            changed += [place] if read_record(line, place).to_json() != line else []
    assert not changed


def test_a_new_record_has_files_weights_settings_and_metrics_of_its_own():
    content = make_record(test={"accuracy": 1, "calibration_error": 0.05})
    content["code"] |= {"commit": None, "dirty": None, "files": {"run.py": "a1b2"}}
    content |= {"peak_memory_mib": None, "weights": "weights.pt", "note": {"of": ["theirs"]}}
    content["config"]["trainer"] = {"max_epochs": 3}
    record = as_read(content)
    assert (record.code.files, record.weights) == ({"run.py": "a1b2"}, "weights.pt")
    assert record.metrics["test"]["calibration_error"] == 0.05
    assert json.loads(record.to_json()) == json.loads(record.to_json(indent=1)) == content
    assert as_read(make_record()).weights is None


def test_the_runner_builds_a_record_from_its_fields():
    content = make_record()
    fields = {key: value for key, value in content.items() if key not in ("schema", "metrics")}
    record = Record(**fields, metrics=by_split(content["curves"][-1]))
    assert record == as_read(content)
    assert (record.last_epoch, record.reported_epoch) == (3, 3)
    selected = as_read(make_translation_record(bleu=(1.0, 3.0, 2.0)))
    assert (selected.last_epoch, selected.reported_epoch) == (3, 2)


def test_a_malformed_record_is_named_by_place_key_and_remedy():
    def without_curve(record):
        record.update(epoch=9)

    cases = [
        (lambda record: record.pop("seed"), "the key seed is missing"),
        (lambda record: record["code"].pop("digest"), "the key code.digest is missing"),
        (lambda record: record["config"].pop("data"), "the key config.data is missing"),
        (lambda record: record["config"]["activation"].pop("name"), "the key config.activation.name is missing"),
        (lambda record: record["data"].pop("split_hash"), "the key data.content_hash is missing"),
        (lambda record: record["metrics"]["test"].pop("brier"), "the key metrics.test.brier is missing"),
        (lambda record: record["metrics"]["train"].pop("macro_f1"), "the key metrics.train.macro_f1 is missing"),
        (lambda record: record["curves"][1].pop("epoch"), "the key curves[1].epoch is missing"),
        (lambda record: record["curves"][2].pop("test/sparsity"), "the key curves[2].test/sparsity is missing"),
        (lambda record: record["curves"].clear(), "curves is empty"),
        (without_curve, "curves has no row for the reported epoch 9"),
        (lambda record: record.update(seed="21"), "seed='21': it should be a valid integer"),
        (lambda record: record.update(seed=True), "seed=True: it should be a valid integer"),
        (lambda record: record.update(seed=21.0), "seed=21.0: it should be a valid integer"),
        (lambda record: record.update(metrics=[]), "metrics=[]: it should be a valid dictionary"),
        (
            lambda record: record["metrics"]["train"].update(accuracy=True),
            "metrics.train.accuracy=True: it should be a",
        ),
        (lambda record: record["curves"][0].update(r=float("nan")), "curves[0].r=nan: it should be a finite number"),
        (lambda record: record.update(schema=2), "schema=2, allowed is 1"),
        (lambda record: record.pop("schema"), "schema=None, allowed is 1"),
    ]
    said = {}
    for damage, message in cases:
        record = make_record()
        damage(record)
        with pytest.raises(RecordError) as error:
            read_record(json.dumps(record), "a file, line 2")
        said[message] = str(error.value)
    wrong = {
        message: text
        for message, text in said.items()
        if not text.startswith(f"a file, line 2: {message}") or "repeat" not in text or "\n" in text
    }
    assert not wrong


def test_a_translation_without_the_metric_that_selected_its_epoch_is_refused():
    record = make_translation_record()
    del record["metrics"]["dev"]["bleu"]
    with pytest.raises(RecordError, match=r"metrics\.dev\.bleu is missing"):
        as_read(record)


def test_text_that_is_no_record_is_named():
    for text in ('{"schema": 1', "[]", "1", "null"):
        with pytest.raises(RecordError, match=r"^here: .*not a JSON object"):
            read_record(text, "here")
