"""One table of damage: each command ends with one line that names the file and the remedy, and writes nothing."""

import shutil
from pathlib import Path

import pytest

from reporting.__main__ import main
from tests.reporting.synthetic_records import finish_runs, make_record
from tests.reporting.synthetic_results import SMALL, SMALL_PUBLISHED

RECORDS, DECLARATION, PAPER = "records/airline.jsonl", "tables.yaml", "published/paper.yaml"
CLAIM = "rows: [learned], against: [softmax]}"
OF_LEARNED = ", asked for row 'learned' of small, accuracy: "
PAIR = "[0.910, 0.006]"

# A file, the text in it that is replaced (None: all of it), the new text, and what the line says after the file.
DAMAGE = {
    "records that are no text": (RECORDS, None, b"\xff\xfe", ": not a text in UTF-8 (invalid start byte at byte 0)"),
    "records cut short": (RECORDS, None, '{"schema": 1', ", line 1: not a JSON object"),
    "no records": (RECORDS, None, "\n", ": the file is empty; restore it, or remove it and collect it again"),
    "a record of another experiment": (RECORDS, '"airline"', '"digits"', ", line 1: "),
    "an empty declaration": (DECLARATION, None, "", ": it should be a valid dictionary"),
    "a declaration that is no YAML": (DECLARATION, "panels: []", "panels: [", ": while parsing"),
    "an impossible date": (DECLARATION, None, "a: 2001-13-45", ": month must be in 1..12"),
    "a key there twice": (
        DECLARATION,
        "compared: a",
        "compared: b\n    compared: a",
        ": the key compared is there twice",
    ),
    "a misspelt key": (DECLARATION, "title: A", "titel: A", ": the key tables.small.titel is not known"),
    "a missing key": (DECLARATION, "    repeat: make small_table\n", "", ": the key tables.small.repeat is missing"),
    "a value of another type": (DECLARATION, "decimals: 3", "decimals: x", ": published_decimals='x': it should be"),
    "a path for a name": (DECLARATION, "  small:", "  ../small:", ": tables.../small.[key]='../small': it should be a"),
    "the verdicts' name": (DECLARATION, "  small:", "  verdicts:", ": no table may be named 'verdicts'"),
    "a seed twice": (
        DECLARATION,
        "[1, 2, 3, 4, 5]",
        "[1, 1, 2]",
        ": tables.small.seeds=[1, 1, 2]: it should have each",
    ),
    "a share above 1": (DECLARATION, "0.95", "1.5", ": bootstrap.confidence=1.5: it should be less than 1"),
    "a row of no activation": (DECLARATION, "select: {name: softmax}", "select: {}", ": tables.small.rows.softmax.sel"),
    "an order that is no number": (DECLARATION, "q: 1.25", "q: x", ": tables.small.rows.learned.select={"),
    "a row that is not there": (
        DECLARATION,
        CLAIM,
        "rows: [learnt]}",
        ": claim 'SharMiX wins' of small: there is no row",
    ),
    "a metric that is not shown": (DECLARATION, "metric: sparsity", "metric: density", ": claim 'SharMiX is dense' of"),
    "no such metric to compare": (
        DECLARATION,
        "compared: accuracy",
        "compared: brier",
        ": small, compared: there is no",
    ),
    "no baseline": (DECLARATION, "baseline: {name: softmax}", "", ": small compares 'accuracy' with no baseline"),
    "an unknown split": (DECLARATION, "split: train", "split: validation", ": columns of small: there is no split"),
    "an epoch that is not shown": (
        DECLARATION,
        CLAIM,
        f"{CLAIM[:-1]}, epoch: 9}}",
        ": claim 'SharMiX wins' of small: t",
    ),
    "points as fractions": (DECLARATION, "epochs: [], printed", "unit: points, printed", ": small compares ['accuracy"),
    "an unknown panel": (
        DECLARATION,
        "panels: []",
        "panels: [{title: A, runs: large}]",
        ": panel 'A': there is no table",
    ),
    "two rows of one label": (
        DECLARATION,
        "{name: entmax, alpha: 1.5}",
        "{name: softmax}",
        ": small has several rows for",
    ),
    "two columns of one title": (DECLARATION, "split: train", "split: test", ": small has several columns for"),
    "a seed of another table": (
        DECLARATION,
        "alpha: 1.5}}",
        "alpha: 1.5}, seeds: [9]}",
        ": row 'extra' of small: there",
    ),
    "a claim without a number": (
        DECLARATION,
        "published: sharmix}",
        "published: null}",
        ": claim 'SharMiX wins' of sma",
    ),
    "an empty paper": (PAPER, None, "", ", asked for small: None is not allowed; it must be a mapping"),
    "no such row in the paper": (PAPER, "sharmix:", "sharmax:", ", asked for row 'learned' of small: there is no row"),
    "a share that is a text": (PAPER, PAIR, '"0.9"', f"{OF_LEARNED}'0.9' is not allowed; it must be a number"),
    "a negative deviation": (PAPER, PAIR, "[0.9, -1]", f"{OF_LEARNED}the deviation -1 is not allowed"),
    "an accuracy in per cent": (PAPER, PAIR, "91.0", f"{OF_LEARNED}test/accuracy=91.0: it should be between 0 and 1"),
}


def said(*arguments: object) -> str:
    """The line that a command ends with."""
    with pytest.raises(SystemExit) as end:
        main([str(argument) for argument in arguments])
    assert isinstance(end.value.code, str), arguments  # the exit status is 1
    assert "\n" not in end.value.code
    return end.value.code


@pytest.mark.medium
def test_damaged_files_are_named_and_nothing_is_written(small, tmp_path):
    wrong = []
    for name, (file, old, new, message) in DAMAGE.items():
        results = tmp_path / name.replace(" ", "-")
        shutil.copytree(small, results, ignore=shutil.ignore_patterns("*-*"))
        place = results / file
        whole = place.read_bytes()
        content = new if old is None else whole.decode().replace(old, new)
        assert old is None or old.encode() in whole, name
        place.write_bytes(content if isinstance(content, bytes) else content.encode())
        line = said("tables", "--results", results, "--settings", results)
        if not line.startswith(f"error: {place}{message}") or (results / "tables").exists():
            wrong.append(f"{name}: {line}")
    assert not wrong


def test_a_file_that_is_missing_is_named(small):
    options = "--results", small, "--settings", small
    for file, message in ((PAPER, "no such file; tables.yaml asks for it"), (DECLARATION, "no such file; name the f")):
        (small / file).unlink()
        assert said("tables", *options).startswith(f"error: {small / file}: {message}")
    (small / DECLARATION).write_text(SMALL)
    (small / PAPER).write_text(SMALL_PUBLISHED)
    (small / RECORDS).unlink()
    assert "there are no records of airline; run an experiment, then" in said("tables", *options)


def test_a_folder_that_cannot_be_written_is_named(small):
    (small / "tables").write_text("a file")
    assert said("tables", "--results", small, "--settings", small).startswith(f"error: {small / 'tables'}")


@pytest.mark.parametrize(("content", "message"), [(b"\xff", "not a text in UTF-8"), (b'{"a": ', "not a JSON object")])
def test_a_damaged_run_is_named_and_nothing_is_collected(tmp_path: Path, content, message):
    finish_runs(tmp_path, [make_record(seed=seed) for seed in (1, 2)] + [make_record(experiment="digits")])
    file = next(tmp_path.glob("airline/*/1/record.json"))
    file.write_bytes(content)
    for command in (["collect", "digits", "airline", "--results", tmp_path / "results"], ["summary", "airline"]):
        assert said(*command, "--outputs", tmp_path).startswith(f"error: {file}: {message}")
    assert not (tmp_path / "results").exists()


def test_the_name_of_an_experiment_is_no_path():
    with pytest.raises(SystemExit) as end:
        main(["collect", "../airline"])
    assert end.value.code == 2
