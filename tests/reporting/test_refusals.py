"""Each command ends with one line that names the damaged file and the remedy, and writes nothing."""

import pytest

from reporting.__main__ import main
from tests.reporting.synthetic_records import finish_runs, make_record
from tests.reporting.synthetic_results import SMALL, both

RECORDS, DECLARATION, PAPER = "records/airline.jsonl", "tables.yaml", "published/paper.yaml"
LEARNED, OF_LEARNED = ": claim 'SharMiX wins' of small: ", ", asked for row 'learned' of small, accuracy: "
CLAIM, PAIR = "rows: [learned], against: [softmax]", "[0.910, 0.006]"
OF_SUPPORT = SMALL.replace("accuracy: accuracy,", "accuracy: accuracy, support: S,").replace(
    "compared: a", "compared: support #"
)

# A file, the text in it that is replaced (None: all of it), the new text, and what the line says after the file.
DAMAGE = [
    (RECORDS, None, b"\xff\xfe", ": not a text in UTF-8: byte 0xff in line 1; restore"),
    (DECLARATION, None, "[" * 10_000, ": maximum recursion depth exceeded"),
    (RECORDS, None, "\n", ": the file is empty; restore it, or remove it and collect it again"),
    (DECLARATION, "compared: a", "compared: b\n    compared: a", ": found duplicate key compared in line 17; "),
    (DECLARATION, "title: A", "titel: A", ": the key tables.small.titel is not known"),
    (DECLARATION, "    repeat: make small_table\n", "", ": the key tables.small.repeat is missing"),
    (DECLARATION, "decimals: 3", "decimals: x", ": published_decimals='x': it should be"),
    (DECLARATION, "q: 1.25", "q: x", ": tables.small.rows.learned.select={"),
    (DECLARATION, "{name: entmax, alpha: 1.5}", "{name: softmax}", ": small has several rows for"),
    (DECLARATION, "compared: accuracy", "compared: brier", ": small, compared: there is no"),
    (DECLARATION, "baseline: {name: softmax}", "", ": small compares 'accuracy' with no baseline"),
    (DECLARATION, "alpha: 1.5}}", "alpha: 1.5}, seeds: [9]}", ": row 'extra' of small: there"),
    (DECLARATION, "panels: []", "panels: [{title: A, runs: large}]", ": panel 'A': there is no table"),
    (DECLARATION, CLAIM, "rows: [learnt]", f"{LEARNED}there is no row"),
    (DECLARATION, CLAIM, f"{CLAIM}, epoch: 9", f"{LEARNED}there is no epoch 9"),
    (DECLARATION, "metric: sparsity", "metric: density", ": claim 'SharMiX is dense' of small: there is no metric"),
    (DECLARATION, "published: sharmix}", "published: null}", f"{LEARNED}row 'learned' has no published numbers"),
    (DECLARATION, "against: [softmax]", "against: [softmacks]", f"{LEARNED}there is no row"),
    (DECLARATION, "epochs: [], printed", "epochs: [2], printed", ": small, compared: there is no metric 'accuracy'"),
    (DECLARATION, None, OF_SUPPORT, ": small, compared: 'support' is not allowed; it must be a metric from 0 to 1"),
    (PAPER, "sharmix:", "sharmax:", ", asked for row 'learned' of small: there is no row"),
    (PAPER, PAIR, '"0.9"', f"{OF_LEARNED}'0.9' is not allowed; it must be a number"),
    (
        PAPER,
        PAIR,
        "{low: 0.9, high: 0.1}",
        f"{OF_LEARNED}{{'high': 0.1, 'low': 0.9}} is not allowed; it must be a number",
    ),
    (PAPER, PAIR, "[0.910, -0.006]", f"{OF_LEARNED}[0.91, -0.006] is not allowed; it must be a number"),
    (PAPER, PAIR, "{low: 0.9, high: 1.05}", f"{OF_LEARNED}test/accuracy=1.05: it should be between 0 and 1"),
    (PAPER, PAIR, "91.0", f"{OF_LEARNED}test/accuracy=91.0: it should be between 0 and 1"),
]


def said(*arguments):
    """The line that a command ends with."""
    with pytest.raises(SystemExit) as end:
        main([str(argument) for argument in arguments])
    assert isinstance(end.value.code, str), arguments  # the exit status is 1
    assert "\n" not in end.value.code
    return end.value.code


@pytest.mark.medium
def test_damaged_files_are_named_and_nothing_is_written(small):
    wrong = []
    for file, old, new, message in DAMAGE:
        place = small / file
        whole = place.read_text("utf-8")
        assert old is None or old in whole, old
        content = new if old is None else whole.replace(old, new)
        place.write_bytes(content if isinstance(content, bytes) else content.encode())
        line = said("tables", *both(small))
        if not line.startswith(f"error: {place}{message}") or (small / "tables").exists():
            wrong.append(line)
        place.write_text(whole, "utf-8")
    assert not wrong


def test_a_file_that_is_missing_is_named(small):
    (small / RECORDS).rename(small / "kept")
    assert "there are no records of airline; run an experiment, then" in said("tables", *both(small))
    (small / "kept").rename(small / RECORDS)
    for file in (PAPER, DECLARATION):
        (small / file).unlink()
        message = said("tables", *both(small))
        assert message.startswith(
            f"error: {small / file}: cannot be read (No such file or directory; {(small / file).parent} holds "
        )


def test_a_folder_that_cannot_be_written_is_named(small):
    (small / "tables").write_text("a file")
    assert said("tables", *both(small)).startswith(f"error: {small / 'tables'}")


@pytest.mark.medium
def test_a_damaged_run_is_named_and_nothing_is_collected(tmp_path):
    finish_runs(tmp_path, [make_record(seed=seed) for seed in (1, 2)] + [make_record(experiment="digits")])
    file = next(tmp_path.glob("airline/*/1/record.json"))
    file.write_text('{"a": ')
    for command in (["collect", "digits", "airline", "--results", tmp_path / "results"], ["summary", "airline"]):
        assert said(*command, "--outputs", tmp_path).startswith(f"error: {file}: not a JSON object")
    assert not (tmp_path / "results").exists()
