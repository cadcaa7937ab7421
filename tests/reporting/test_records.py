"""Keeping and reading the records of runs."""

import json
import random

import pytest

from reporting.records import RecordError, collect, main, read_records, records_path
from tests.reporting.synthetic_records import finish_runs, keep_records, make_record


def test_collected_records_are_read_back_sorted(tmp_path):
    records = [
        make_record("softmax", 21),
        make_record("softmax", 42),
        make_record("sharmix_learned", 9998, q=1.25, r=1.5),
        make_record("sharmix_learned", 21, q=1.5, r=1.25),
        make_record("sharmix_learned", 21, q=1.25, r=1.75),
    ]
    random.Random(0).shuffle(records)
    finish_runs(tmp_path / "outputs", records)

    path = collect("airline", tmp_path / "outputs", tmp_path / "results")

    assert path == records_path(tmp_path / "results", "airline")
    kept = read_records(tmp_path / "results", "airline")
    order = [(r["config"]["activation"]["name"], r["config"]["activation"]["r"], r["seed"]) for r in kept]
    assert order == [
        ("sharmix_learned", 1.5, 9998),
        ("sharmix_learned", 1.75, 21),
        ("sharmix_learned", 1.25, 21),
        ("softmax", None, 21),
        ("softmax", None, 42),
    ]
    assert sorted(map(json.dumps, kept)) == sorted(
        json.dumps(json.loads(json.dumps(record, sort_keys=True))) for record in records
    )


def test_no_folder_of_the_machine_is_kept(tmp_path):
    record = make_record("softmax", 21)
    record["config"]["paths"] = {"data": "/home/somebody/data", "outputs": "outputs"}
    finish_runs(tmp_path / "outputs", [record])
    path = collect("airline", tmp_path / "outputs", tmp_path / "results")
    assert "somebody" not in path.read_text()
    del record["config"]["paths"]
    assert read_records(tmp_path / "results", "airline") == [json.loads(json.dumps(record))]


def test_collecting_again_changes_nothing(tmp_path):
    finish_runs(tmp_path / "outputs", [make_record(seed=seed) for seed in (21, 42, 63)])
    first = collect("airline", tmp_path / "outputs", tmp_path).read_bytes()
    assert collect("airline", tmp_path / "outputs", tmp_path).read_bytes() == first
    assert [path.name for path in (tmp_path / "records").iterdir()] == ["airline.jsonl"]


def test_only_the_asked_experiment_is_collected(tmp_path):
    finish_runs(tmp_path, [make_record(), make_record(experiment="digits")])
    collect("digits", tmp_path, tmp_path)
    assert [record["experiment"] for record in read_records(tmp_path, "digits")] == ["digits"]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda record: record.pop("seed"), "the key seed is missing"),
        (lambda record: record["code"].pop("digest"), "the key code.digest is missing"),
        (lambda record: record["metrics"]["test"].pop("brier"), "metrics.test.brier is missing"),
        (lambda record: record.update(seed="21"), "seed='21' is not int"),
        (lambda record: record.update(seed=True), "seed=True is not int"),
        (lambda record: record.update(seed=21.0), "seed=21.0 is not int"),
        (lambda record: record.update(schema=2), "schema=2, allowed is 1"),
        (lambda record: record.update(experiment="digits"), "experiment='digits', allowed"),
        (lambda record: record.update(metrics=[]), "metrics=[] is not dict"),
        (lambda record: record["config"].pop("data"), "the key config.data is missing"),
        (lambda record: record["curves"][1].pop("epoch"), "curves[1].epoch is missing"),
        (lambda record: record["curves"][2].pop("test/sparsity"), "curves[2].test/sparsity is missing"),
        (
            lambda record: record["metrics"]["train"].update(accuracy=True),
            "metrics.train.accuracy=True is not float",
        ),
    ],
)
def test_a_malformed_record_is_named_by_file_line_and_key(tmp_path, damage, message):
    record = make_record(seed=42)
    damage(record)
    path = keep_records(tmp_path, [make_record(seed=21), record])
    with pytest.raises(RecordError) as error:
        read_records(tmp_path, "airline")
    assert f"{path}, line 2: " in str(error.value)
    assert message in str(error.value)


@pytest.mark.parametrize("text", ['{"schema": 1', "[]", "1"])
def test_a_line_that_is_no_record_is_named(tmp_path, text):
    path = keep_records(tmp_path, [make_record()])
    path.write_text(path.read_text("utf-8") + text, "utf-8")
    with pytest.raises(RecordError, match="line 2: "):
        read_records(tmp_path, "airline")


def test_whole_numbers_pass_as_metrics_and_unknown_code_as_null(tmp_path):
    record = make_record(test={"accuracy": 1})
    record["code"].update(commit=None, dirty=None)
    record["peak_memory_mib"] = None
    keep_records(tmp_path, [record])
    assert read_records(tmp_path, "airline") == [record]


def test_a_run_recorded_twice_is_an_error_that_names_both_places(tmp_path):
    keep_records(tmp_path, [make_record(seed=21), make_record(seed=42), make_record(seed=21)])
    with pytest.raises(RecordError, match=r"line 3: .*seed=21 is also recorded in .*line 1"):
        read_records(tmp_path, "airline")


def test_a_failed_collection_leaves_the_kept_records_as_they_were(tmp_path):
    path = keep_records(tmp_path, [make_record()])
    before = path.read_bytes()
    broken = make_record(seed=42)
    del broken["metrics"]
    finish_runs(tmp_path / "outputs", [broken])
    with pytest.raises(RecordError, match=r"record\.json: the key metrics is missing"):
        collect("airline", tmp_path / "outputs", tmp_path)
    assert path.read_bytes() == before


def test_missing_records_are_explained(tmp_path):
    with pytest.raises(RecordError, match=r"python -m reporting\.records --experiment airline"):
        read_records(tmp_path, "airline")
    with pytest.raises(RecordError, match=r"python run\.py experiment=airline"):
        collect("airline", tmp_path / "outputs", tmp_path)


def test_the_command_writes_the_file_and_prints_it(tmp_path, capsys):
    finish_runs(tmp_path / "outputs", [make_record()])
    arguments = ["--experiment", "airline", "--results", str(tmp_path / "results")]
    main([*arguments, "--outputs", str(tmp_path / "outputs")])
    assert capsys.readouterr().out.strip() == str(records_path(tmp_path / "results", "airline"))
    with pytest.raises(SystemExit, match=r"error: .*no finished run of 'airline'"):
        main([*arguments, "--outputs", str(tmp_path / "nowhere")])
