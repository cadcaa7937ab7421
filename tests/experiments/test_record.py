"""The record of a run: what it accepts, what it refuses, and that nothing of it is lost."""

import json
import math
import random
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from experiments.modules.beam_search import Hypothesis
from experiments.modules.metrics import OutputMetrics
from experiments.modules.translation_metrics import SentenceMetrics, TokenMetrics
from experiments.record import Record, RecordError, by_split, load_record, read_record, value_range
from tests.reporting.synthetic_records import as_read, changed, make_record, make_translation_record
from tests.reporting.synthetic_results import RESULTS


def test_every_committed_record_is_read_and_written_to_the_letter():
    changed = []
    for file in (RESULTS / "records").rglob("*.jsonl"):
        for number, line in enumerate(file.read_text("utf-8").splitlines(), 1):
            place = f"{file.name}, line {number}"
            changed += [place] if read_record(line, place).to_json() != line else []
    assert not changed


def test_a_new_record_has_files_weights_settings_and_metrics_of_its_own():
    content = make_record(test={"accuracy": 1, "calibration_error": 0.05})
    content["code"] |= {"commit": None, "dirty": None, "files": {"run.py": "a1b2"}}
    content |= {"peak_memory_mib": None, "weights": "weights.pt", "note": {"of": ["theirs"]}}
    content = changed(content, trainer={"max_epochs": 3})
    record = as_read(content)
    assert (record.code.files, record.weights) == ({"run.py": "a1b2"}, "weights.pt")
    assert record.metrics["test"]["calibration_error"] == 0.05
    assert record.to_json() == json.dumps(json.loads(record.to_json(indent=1)), ensure_ascii=False, sort_keys=True)
    assert json.loads(without_digest(record.to_json())) == content
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


# Every case damages a record that is committed, without its digest, as older records are.


def without_digest(text: str) -> str:
    content = json.loads(text)
    assert len(content.pop("digest")) == 64
    return json.dumps(content, sort_keys=True)


LEARNED, TRANSLATION = (
    next(
        without_digest(line)
        for line in (RESULTS / "records" / file).read_text("utf-8").splitlines()
        if activation in line
    )
    for file, activation in (("airline.jsonl", '"sharmix_learned"'), ("multi30k.jsonl", '"sharmix_learned"'))
)


def refusal(text: str) -> str:
    """What is said about the text of a record; empty where it is taken."""
    try:
        read_record(text, "kept.jsonl, line 3")
    except RecordError as error:
        return str(error)
    return ""


def refused(cases: list[tuple[str, Callable[[dict[str, Any]], object], str]]) -> dict[str, str]:
    """The cases that are not refused with their message: a record, its damage and the message."""
    wrong = {}
    for line, damage, message in cases:
        content = json.loads(line)
        damage(content)
        said = refusal(json.dumps(content))
        if not said.startswith(f"kept.jsonl, line 3: {message}") or "\n" in said or len(said) > 400:
            wrong[message] = said
    return wrong


def both(split: str, name: str, value: object) -> Callable[[dict[str, Any]], object]:
    """Puts a metric into the metrics and into the curves."""

    def damage(record: dict[str, Any]) -> None:
        number = record["epoch"] - 1
        record["metrics"][split][name] = record["curves"][number][f"{split}/{name}"] = value

    return damage


def test_numbers_that_are_none_or_out_of_range_are_refused():
    shares = ("accuracy", "macro_f1", "sparsity", "coverage", "zero_true")
    of_sentences = ("exact_match", "empty_preferred", "empty_possible", "unfinished", "sparsity_in_use", "support_to_8")
    cases = [
        *(
            (LEARNED, both("test", name, 7.9), f"curves[9].test/{name}=7.9: it should be between 0 and 1")
            for name in shares
        ),
        *((LEARNED, both("train", name, -0.1), f"curves[9].train/{name}=-0.1: it should be") for name in shares),
        *(
            (
                LEARNED,
                both("test", f"{group}_accuracy", 1.1),
                f"curves[9].test/{group}_accuracy=1.1: it should be between 0",
            )
            for group in ("many", "medium", "few")
        ),
        *((TRANSLATION, both("dev", name, 1.01), f"curves[9].dev/{name}=1.01: it") for name in of_sentences),
        *(
            (TRANSLATION, both("test", name, 101), f"curves[9].test/{name}=101: it should be between 0 and 100")
            for name in ("bleu", "chrf")
        ),
        *(
            (LEARNED, both("test", name, -1), f"curves[9].test/{name}=-1: it should be at least 0")
            for name in ("support", "brier")
        ),
    ]
    for name in ("steps", "learning_rate", "examples_per_second", "training_seconds"):
        cases.append(
            (
                LEARNED,
                lambda r, name=name: r["curves"][3].update({name: -5}),
                f"curves[3].{name}=-5: it should be at least 0",
            )
        )
    for value, shown in (
        ("0.5", "'0.5'"),
        (None, "None"),
        (True, "True"),
        (math.nan, "nan"),
        (math.inf, "inf"),
        (10**400, "1000"),
    ):
        cases.append((LEARNED, both("test", "loss", value), f"curves[9].test/loss={shown}"))
        cases.append((LEARNED, lambda r, value=value: r.update(wall_time_seconds=value), f"wall_time_seconds={shown}"))
    cases += [
        (LEARNED, lambda r: r["data"].update(split_hash=[]), "data.split_hash=[]: it should be a text"),
        (LEARNED, lambda r: r.update(wall_time_seconds=-1), "wall_time_seconds=-1: it should be at least 0"),
        (LEARNED, lambda r: r.update(peak_memory_mib=-1), "peak_memory_mib=-1: it should be at least 0"),
        (LEARNED, lambda r: r.update(seed=-1), "seed=-1: it should be"),
        (LEARNED, lambda r: r["data"].update(train_size=-5), "data.train_size=-5: it should be at least 0"),
        (
            LEARNED,
            lambda r: r["data"].update(test_unknown_share=math.nan),
            "data.test_unknown_share=nan: it should be a finite",
        ),
        (
            LEARNED,
            lambda r: r["environment"]["hardware"].update(cores=-math.inf),
            "environment.hardware.cores=-inf: it should",
        ),
    ]
    assert not refused(cases)
    assert "test/accuracy=inf" in refusal(LEARNED.replace('"test/accuracy": 0', '"test/accuracy": 1e999, "": 0', 1))


def test_a_record_that_contradicts_itself_is_refused():
    def report(epoch: int) -> Callable[[dict[str, Any]], object]:
        return lambda r: r.update(epoch=epoch, metrics=by_split(r["curves"][epoch - 1]))

    cases = [
        (LEARNED, lambda r: r["config"]["activation"].update(q=1.99), "run_id='"),
        (LEARNED, lambda r: r["config"]["optimizer"].update(learning_rate=9.0), "run_id='"),
        (LEARNED, lambda r: r["config"].pop("module"), "run_id='"),
        (TRANSLATION, lambda r: r["config"]["trainer"].update(epochs=9), "run_id='"),
        (TRANSLATION, lambda r: r["config"].update(module={}), "the key config.callbacks is missing"),
        (
            LEARNED,
            lambda r: r.update(run_id="0" * 12),
            "run_id='000000000000' contradicts config, whose settings have '",
        ),
        (LEARNED, lambda r: r.update(experiment="digits"), "experiment='digits' contradicts config.name='airline'"),
        (LEARNED, lambda r: r.update(seed=22), "seed=22 contradicts config.seed="),
        (LEARNED, lambda r: r["config"].update(seed=5), "seed="),
        (LEARNED, lambda r: r["curves"].pop(3), "curves[3].epoch=5: it should be 4, without a gap"),
        (LEARNED, lambda r: r["curves"].insert(3, r["curves"][3]), "curves[4].epoch=4: it should be 5"),
        (LEARNED, lambda r: r["curves"].insert(1, r["curves"].pop(3)), "curves[1].epoch=4: it should be 2"),
        *(
            (
                LEARNED,
                lambda r, value=value: r["curves"][0].update(epoch=value),
                f"curves[0].epoch={value}: it should be 1",
            )
            for value in (0, 1.0, 1.5, -1)
        ),
        (
            LEARNED,
            lambda r: r["metrics"]["test"].update(accuracy=0.5),
            "metrics.test.accuracy=0.5: it contradicts curves[9].test/accuracy=0.",
        ),
        (LEARNED, lambda r: r.update(epoch=3), "metrics.test.accuracy=0."),
        (LEARNED, report(3), "epoch=3: it should be 10, which has the last numbers, for selected_by is null"),
        (TRANSLATION, report(2), "epoch=2: it should be 10, which has the largest dev/bleu"),
        (TRANSLATION, lambda r: r["curves"][2].update({"dev/bleu": 99.0}), "epoch=10: it should be 3, which"),
        (
            LEARNED,
            lambda r: r.update(selected_by="test/nothing"),
            "selected_by='test/nothing': curves has no such metric",
        ),
        (
            LEARNED,
            lambda r: r.update(finished_at="yesterday"),
            "finished_at='yesterday': it should be a time with its zone",
        ),
        (
            LEARNED,
            lambda r: r.update(finished_at="2026-11-21T08:00:00"),
            "finished_at='2026-11-21T08:00:00': it should be a time",
        ),
        (LEARNED, lambda r: r.update(weights_hash="5p117"), "weights_hash='5p117': it should be 64 hexadecimal digits"),
        (LEARNED, lambda r: r.update(weights="../../w"), "weights='../../w': it should be the name of a file"),
        (LEARNED, lambda r: r.update(schema=True), "schema=True, allowed is 1"),
        (LEARNED, lambda r: r["config"].update(data="x"), "config.data='x': it should be a valid dictionary"),
        (
            LEARNED,
            lambda r: r["config"]["activation"].update(q="x"),
            "config.activation.q='x': it should be a finite number",
        ),
    ]
    assert not refused(cases)


def test_text_that_json_or_utf8_cannot_hold_is_refused(tmp_path):
    cases = [
        ('{"seed": 21, ' + LEARNED[1:], "not a JSON object (the key 'seed' is there twice)"),
        (
            LEARNED.replace('"test/loss"', '"test/loss": 0.1, "test/loss"', 1),
            "not a JSON object (the key 'test/loss' is",
        ),
        ("[" * 100_000, "not a record (it nests too deep)"),
        (LEARNED[:-1] + ', "x": ' + "[" * 500 + "]" * 500 + "}", "x[0][0]"),
        (LEARNED[:-1] + ', "x": ' + "1" * 5000 + "}", "not a JSON object (Exceeds the limit"),
        (LEARNED[:-1] + r', "x": "\ud800"}', r"x='\ud800': it should be text that UTF-8 can hold"),
        ("\0" + LEARNED, "not a JSON object"),
        (LEARNED[: len(LEARNED) // 2], "not a JSON object"),
    ]
    said = [(message, refusal(text)) for text, message in cases]
    assert not [(message, text) for message, text in said if not text.startswith(f"kept.jsonl, line 3: {message}")]
    assert not [text for _, text in said if "force=true" not in text or len(text) > 500]

    file = tmp_path / "record.json"
    file.write_bytes(b"\xef\xbb\xbf" + LEARNED.encode())  # a byte order mark, which some editors add
    assert load_record(file) == read_record(LEARNED, "here")
    file.write_bytes(LEARNED.encode() + b"\xff")
    with pytest.raises(
        RecordError, match=r"record\.json: not a text in UTF-8 \(invalid start byte at byte \d+\); repeat"
    ):
        load_record(file)
    with pytest.raises(RecordError, match=r": not a file; repeat the run with force=true"):
        load_record(tmp_path)
    with pytest.raises(RecordError, match=r"none\.json: cannot be read \(No such file or directory\); repeat"):
        load_record(tmp_path / "none.json")


def test_the_suite_writes_no_metric_whose_range_is_not_known():
    found = [Hypothesis((4, 5), -1.0)]
    sentences = SentenceMetrics()
    sentences.update(torch.tensor([0]), found, ["a b c d e"], ["a b c d e"], torch.tensor([-2.0]))
    of_sentences = sentences.compute()
    names = {
        *OutputMetrics(3, {group: torch.tensor([number]) for number, group in enumerate(("many", "medium", "few"))}),
        *TokenMetrics(torch.ones(9, dtype=torch.bool)),
        *of_sentences,
    }
    assert {"few_sparsity", "support_to_16", "bleu", "brier"} <= names
    unlimited = [name for name in names if not math.isfinite(value_range(f"test/{name}")[0])]
    assert unlimited == ["loss"]  # of which an activation from elsewhere may have a negative one
    assert value_range("test/calibration_error") == value_range("tau") == (-math.inf, math.inf)
    # SacreBLEU gives 100.00000000000004 for a perfect translation.
    content = json.loads(TRANSLATION)
    both("dev", "bleu", of_sentences["bleu"])(content)
    assert refusal(json.dumps(content)) == ""


def test_numbers_of_ones_own_may_be_any_and_orders_of_ones_own_as_well():
    content = json.loads(LEARNED)
    both("test", "distance", -7.9)(content)
    assert refusal(json.dumps(content)) == ""
    outside = make_record("mine.Entropy", q=1.5)
    for row in outside["curves"]:
        row["q"] = 3.5
    assert as_read(outside).curves[0]["q"] == 3.5


def test_a_run_writes_no_record_that_is_refused():
    fields = {key: value for key, value in json.loads(LEARNED).items() if key != "schema"}
    assert without_digest(Record.of_run(**fields).to_json()) == LEARNED
    with pytest.raises(
        RecordError, match=r"of this run cannot be kept: curves\[9\].test/accuracy=79: it should be between"
    ):
        Record.of_run(**fields | {"curves": [*fields["curves"][:-1], fields["curves"][-1] | {"test/accuracy": 79}]})
    with pytest.raises(RecordError, match=r"data\.share=nan: it should be a finite number"):
        Record.of_run(**fields | {"data": fields["data"] | {"share": math.nan}})


POISON = (
    None,
    True,
    "",
    "0.5",
    -1,
    0,
    2,
    1e300,
    -0.5,
    math.nan,
    math.inf,
    10**400,
    [],
    {},
    [1],
    {"a": {}},
    "\ud800",
    "../x",
)


def damaged(text: str, numbers: random.Random) -> str:
    """The text with one value replaced or removed, a row doubled, or some of its characters changed."""
    kind = numbers.choice(("value", "value", "removed", "characters", "cut", "doubled"))
    if kind == "characters":
        at = numbers.randrange(len(text))
        put = numbers.choice(
            ('"', "{", "}", "]", ",", ":", "9", "-", "e9", "NaN", "null", "\\", "\0", "\ud800", "\u2028")
        )
        return text[:at] + put + text[at + numbers.randrange(3) :]
    if kind == "cut":
        return text[: numbers.randrange(len(text))]
    content: Any = json.loads(text)
    holder: Any = content
    while True:
        key = numbers.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
        if not isinstance(holder[key], dict | list) or not holder[key] or numbers.random() < 0.2:
            break
        holder = holder[key]
    if kind == "removed":
        del holder[key]
    elif kind == "doubled" and isinstance(holder, list):
        holder.insert(key, holder[key])
    else:
        holder[key] = numbers.choice(POISON)
    return json.dumps(content)


def contradictions(record: Record) -> list[str]:
    """What a reader of the record could be misled by."""
    rows = record.curves
    row = rows[record.reported_epoch - 1]
    numbers = [*row.values(), *(value for of in rows for value in of.values())]
    shares = [
        value for of in rows for name, value in of.items() if re.search("accuracy|sparsity|macro_f1|coverage", name)
    ]
    broken = {
        "epochs": [of["epoch"] for of in rows] != list(range(1, len(rows) + 1)),
        "numbers": not all(type(value) in (int, float) and math.isfinite(value) for value in numbers),
        "shares": not all(-1e-5 < share < 1 + 1e-5 for share in shares),
        "metrics": by_split(row) != record.metrics,
        "names": (record.experiment, record.seed) != (record.config["name"], record.config["seed"]),
        "activation": type(record.config["activation"]["name"]) is not str,
    }
    return [name for name, true in broken.items() if true]


@pytest.mark.medium
def test_a_damaged_record_is_refused_or_misleads_nobody():
    numbers = random.Random(18)
    taken, refusals, wrong = 0, 0, []
    for _ in range(400):
        text = damaged(LEARNED, numbers)
        try:
            record = read_record(text, "kept.jsonl, line 3")
        except RecordError as error:
            refusals += 1
            wrong += [str(error)] if not re.fullmatch(r"kept\.jsonl, line 3: .{1,400}", str(error)) else []
        else:
            taken += 1
            wrong += [text for _ in contradictions(record)]
            wrong += [text] if read_record(record.to_json(), "again") != record else []
    assert not wrong
    assert taken > 20 < refusals


@pytest.mark.medium
def test_a_record_whose_digest_is_of_other_content_is_refused():
    record = read_record(LEARNED, "old.jsonl, line 3")
    text, numbers, refusals = record.to_json(), random.Random(18), 0
    for changed_text in (
        text.replace('"seed": 21', '"seed": 42'),
        *(re.sub(rf'("{name}": \d+\.\d*)\d', r"\g<1>", text, count=1) for name in ("training_seconds", "test/loss")),
    ):
        assert changed_text != text
        with pytest.raises(RecordError, match=r"new.jsonl, line 1: its content does not have its digest"):
            read_record(changed_text, "new.jsonl, line 1")
    for _ in range(400):
        try:
            assert read_record(damaged(text, numbers), "new.jsonl, line 1") == record
        except RecordError:
            refusals += 1
    assert refusals > 380
