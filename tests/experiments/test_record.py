"""The record of a run: what it accepts, what it refuses, and that nothing of it is lost."""

import json
import math
import os
import re

import pytest
import torch

from experiments.metric_catalogue import METRICS, metric
from experiments.modules.beam_search import Hypothesis
from experiments.modules.metrics import OutputMetrics
from experiments.modules.translation_metrics import SentenceMetrics, TokenMetrics
from experiments.record import Record, RecordError, by_split, load_record, out_of_range, read_record
from tests.reporting.synthetic_records import as_read, as_text, make_record
from tests.reporting.synthetic_results import RESULTS


@pytest.mark.medium
def test_every_committed_record_has_all_keys_and_is_written_to_the_letter():
    for file in (RESULTS / "records").rglob("*.jsonl"):
        for number, line in enumerate(file.read_text("utf-8").splitlines(), 1):
            place = f"{file.name}, line {number}"
            assert read_record(line, place).to_json() == line, place
            assert json.loads(line).keys() - {"note"} == {*Record.model_fields, "schema", "digest"}, place


def test_metrics_and_keys_of_ones_own_are_kept():
    content = make_record(test={"accuracy": 1, "calibration_error": -0.05}) | {"note": {"of": ["theirs"]}}
    record = as_read(content)
    assert record.metrics["test"]["calibration_error"] == -0.05
    assert record.to_json() == json.dumps(json.loads(record.to_json(indent=1)), ensure_ascii=False, sort_keys=True)
    assert content.items() <= json.loads(record.to_json()).items()
    assert type(json.loads(record.to_json())["metrics"]["test"]["accuracy"]) is int  # whole numbers stay whole


def test_the_runner_builds_a_record_from_its_fields():
    content = make_record()
    record = Record(**content | {"metrics": by_split(content["curves"][-1])})
    assert record == as_read(content)
    assert (record.last_epoch, record.epoch) == (3, 3)
    content["curves"][1]["test/accuracy"] = 0.9
    selected = as_read(
        content | {"epoch": 2, "selected_by": "test/accuracy", "metrics": by_split(content["curves"][1])}
    )
    assert (selected.last_epoch, selected.epoch) == (3, 2)


# Damage to a record of three epochs, and what is said about it.
DAMAGE = [
    (lambda r: r.pop("seed"), "the key seed is missing"),
    (lambda r: r.update(seed="21"), "seed='21': it should be a valid integer"),
    (lambda r: r.update(curves=[]), "curves=[]: "),
    (lambda r: r["curves"][0].update(r=math.nan), "curves[0].r=nan: it should be a finite number"),
    (lambda r: r.update(schema=2), "schema=2, allowed is 1"),
]


def test_a_record_that_is_malformed_is_named_by_place_key_and_remedy():
    wrong = {}
    for damage, message in DAMAGE:
        record = {"schema": 1, **make_record()}
        damage(record)
        with pytest.raises(RecordError) as error:
            read_record(json.dumps(record), "a file, line 2")
        said = str(error.value)
        if not said.startswith(f"a file, line 2: {message}") or "repeat" not in said:
            wrong[message] = said
    assert not wrong


def test_a_value_that_was_changed_by_hand_is_found_by_the_digest():
    text = as_text(make_record())
    changed = text.replace('"train/loss"', '"train/lost"').replace(
        '"wall_time_seconds": 6.1', '"wall_time_seconds": 5.1'
    )
    assert changed != text
    with pytest.raises(RecordError, match=r"here: its content does not have its digest, so a value was changed"):
        read_record(changed, "here")


def test_text_or_a_file_that_is_no_record_is_named(tmp_path):
    for text in ('{"schema": 1', "[]", "[" * 100_000):
        with pytest.raises(RecordError, match=r"^here: .*not a JSON object"):
            read_record(text, "here")
    file = tmp_path / "record.json"
    file.write_bytes(b"\xff")
    with pytest.raises(RecordError, match=r"record\.json: not a text in UTF-8: byte 0xff in line 1; repeat"):
        load_record(file)
    with pytest.raises(RecordError, match=r"none\.json: cannot be read \(No such file or directory; .*\); repeat"):
        load_record(tmp_path / "none.json")
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(RecordError, match=r"pipe\.json: cannot be read \(It is a pipe, not a file\); repeat"):
        load_record(tmp_path / "pipe.json")


def test_the_suite_writes_no_metric_that_the_list_does_not_know():
    sentences = SentenceMetrics()
    sentences.update(torch.tensor([0]), [Hypothesis((4, 5), -1.0)], ["a b c d e"], ["a b c d e"], torch.tensor([-2.0]))
    of_sentences = sentences.compute()
    names = {
        *OutputMetrics(3, {group: torch.tensor([number]) for number, group in enumerate(("many", "medium", "few"))}),
        *TokenMetrics(torch.ones(9, dtype=torch.bool)),
        *of_sentences,
    }
    assert {"few_sparsity", "support_to_16", "bleu", "brier"} <= names
    assert [name for name in names if not math.isfinite(metric(f"test/{name}").least)] == ["loss"]
    assert {name for name in names if not re.match("few|many|medium|support_to", name)} <= set(METRICS)
    # SacreBLEU gives 100.00000000000004 for a perfect translation.
    assert out_of_range({"dev/bleu": of_sentences["bleu"]}) is None
    for wrong in (-0.01, 1.01):
        assert out_of_range({"test/accuracy": wrong}) == f"test/accuracy={wrong}: it should be between 0 and 1"
    assert out_of_range({"dev/calibration_error": -3.0, "q": 3.5, "tau": -9.0}) is None
