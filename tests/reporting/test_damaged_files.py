"""Whatever stands in place of a file, the command ends with one line that names it and a remedy, and writes nothing."""

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from reporting.__main__ import main
from tests.reporting.synthetic_records import finish_runs, make_record
from tests.reporting.synthetic_results import SMALL, SMALL_PUBLISHED

pytestmark = pytest.mark.medium
RECORDS, DECLARATION, PAPER = "records/airline.jsonl", "tables.yaml", "published/paper.yaml"
BOMB = ", ".join(["a0: &a0 [z]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12))])
MERGED = ", ".join(
    ["a0: &a0 {a: 1}", *(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, 12))]
)


def put(place: Path, content: str | bytes | None) -> None:
    """Replace whatever there is by a file, or by a pipe."""
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    if content is None:
        os.mkfifo(place)
    else:
        place.write_bytes(content if isinstance(content, bytes) else content.encode())


def said(*arguments: object) -> str:
    """The line that a command ends with; a command that reads a pipe would end by an alarm."""
    signal.alarm(60)
    try:
        with pytest.raises(SystemExit) as end:
            main([str(argument) for argument in arguments])
    finally:
        signal.alarm(0)
    assert isinstance(end.value.code, str), arguments  # the exit status is 1
    return end.value.code


def content_of(folder: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def unlike(cases: list[tuple[str, str | bytes | None, str]], small: Path) -> list[str]:
    """The cases that the tables do not refuse as they say: a file of the results, its content, and the message."""
    wrong = []
    for number, (file, content, message) in enumerate(cases):
        results = small.with_name(f"{small.name}-{number}")
        shutil.copytree(small, results)
        put(results / file, content)
        before = content_of(results)
        line = said("tables", "--results", results)
        expected = f"error: {results / file}{message}"
        if not line.startswith(expected) or "\n" in line or len(line) > 600:
            wrong.append(f"{expected} | {line}")
        if content_of(results) != before:
            wrong.append(f"{file} {message}: written")
    return wrong


def test_records_that_are_no_text_are_named(small):
    kept = (small / RECORDS).read_bytes()
    cases = [
        (RECORDS, kept + b"\xff\xfe", ": not a text in UTF-8 (invalid start byte at byte "),
        (RECORDS, kept.decode().encode("utf-16"), ": not a text in UTF-8 ("),
        (RECORDS, kept + b"[" * 200_000, ", line 16: not a record (it nests too deep); repeat the run"),
        (RECORDS, kept + b"1" * 9_999, ", line 16: not a JSON object (Exceeds the limit (4300 digits)"),
        (RECORDS, kept + b"\0", ", line 16: not a JSON object ("),
        (RECORDS, kept[:-99], ", line 15: not a JSON object ("),
        (RECORDS, None, ": not a file; restore it, or remove it and collect it again: `python -m reporting collect"),
        ("records", "x", ": not a folder; move it away, and restore the records or collect them again"),
        ("tables", "x", ": cannot be written (Not a directory); make room and see that it is a folder that you"),
        ("tables", None, ": cannot be written (Not a directory)"),
    ]
    assert not unlike(cases, small)
    # Empty lines, line ends of Windows and a byte order mark change nothing.
    (small / RECORDS).write_bytes(b"\xef\xbb\xbf\n\n" + kept.replace(b"\n", b"\r\n\r\n"))
    main(["tables", "--results", str(small)])


def test_a_damaged_declaration_is_named(small):
    def changed(old: str, new: str) -> str:
        assert old in SMALL
        return SMALL.replace(old, new, 1)

    select = "select: {name: softmax}"
    cases = [
        (DECLARATION, content, f": {message}")
        for content, message in (
            ("", "it should be a valid dictionary"),
            ("[1]", "it should be a valid dictionary"),
            (b"\xff", "not a text in UTF-8 (invalid start byte at byte 0); restore it, or mend it by hand"),
            ("a: \0", "unacceptable character"),
            ("[" * 100_000, "it nests too deep"),
            (None, "not a file; restore it"),
            ("a: 2001-13-45", "month must be in 1..12"),
            ("a: " + "1" * 9_999, "Exceeds the limit (4300 digits)"),
            ("a: !!python/object/apply:os.system [ls]", "could not determine a constructor"),
            (changed(select, f"{select}, where: {{{BOMB}}}"), "its aliases make more than 100000 values of it"),
            (changed(select, f"{select}, where: &own {{data: *own}}"), "it nests too deep"),
            (
                changed("compared: accuracy", "compared: accuracy\n    compared: sparsity"),
                "the key compared is there twice",
            ),
            (changed("  small:", "  ../small:"), "tables.../small.[key]='../small': it should be a plain name"),
            (changed("  small:", "  verdicts:"), "no table may be named 'verdicts'"),
            (
                changed("experiment: airline", "experiment: ../airline"),
                "tables.small.experiment='../airline': it should",
            ),
            (changed("published: paper", "published: ../paper"), "published='../paper': it should be a plain name"),
            (changed("[1, 2, 3, 4, 5]", "[1, 1, 2]"), "tables.small.seeds=[1, 1, 2]: it should have each value once"),
            (changed("[1, 2, 3, 4, 5]", "[]"), "tables.small.seeds=[]: "),
            (changed("confidence: 0.95", "confidence: 1.5"), "bootstrap.confidence=1.5: it should be less than 1"),
            (changed("confidence: 0.95", "confidence: .nan"), "bootstrap.confidence=nan: it should be a finite number"),
            (changed("resamples: 999", "resamples: 999999999999"), "bootstrap.resamples=999999999999: it should be"),
            (changed("published_decimals: 3", "published_decimals: -3"), "published_decimals=-3: it should be"),
            (changed(select, "select: {}"), "tables.small.rows.softmax.select={}: it should have the name of an"),
            (changed("q: 1.25", "q: x"), "tables.small.rows.learned.select={"),
            (
                changed("baseline: {name: softmax}", "baseline: {name: 5}"),
                "tables.small.baseline={'name': 5}: it should",
            ),
        )
    ]
    assert not unlike(cases, small)
    (small / DECLARATION).write_text(changed(select, f"{select}, where: {{{MERGED}}}"), "utf-8")
    assert "have no record" in said("tables", "--results", small)


def test_damaged_numbers_of_the_paper_are_named(small):
    pair, of_learned = "[0.910, 0.006]", ", asked for row 'learned' of small, accuracy: "
    cases = [
        (PAPER, content, message)
        for content, message in (
            ("", ", asked for small: None is not allowed; it must be a mapping, by the name of the table"),
            ("[1]", ", asked for small: [1] is not allowed"),
            ("table_of_paper: [1]", ", asked for small, table_of_paper: [1] is not allowed"),
            ("table_of_paper: {sharmix: null}", ", asked for row 'learned' of small, sharmix: None is not allowed"),
            (b"\xff", ": not a text in UTF-8"),
            (None, ": not a file; restore it, or mend it by hand"),
            (SMALL_PUBLISHED.replace("accuracy: ", "accuracy: 0, accuracy: ", 1), ": the key accuracy is there twice"),
            *((SMALL_PUBLISHED.replace(pair, value), of_learned + message) for value, message in (
                ('"0.9"', "'0.9' is not allowed; it must be a number, or [mean, deviation]"),
                ('["0.9", 0]', "'0.9' is not allowed"),
                ("[0.9, 0, 1]", "[0.9, 0, 1] is not allowed"),
                ("[0.9, -1]", "the deviation -1 is not allowed"),
                (".nan", "nan is not allowed"),
                ("true", "True is not allowed"),
                ("91.0", "test/accuracy=91.0: it should be between 0 and 1"),
            )),
        )
    ]  # fmt: skip
    assert not unlike(cases, small)


def test_finished_runs_that_cannot_be_read_are_named_and_nothing_is_collected(tmp_path):
    outputs, results = tmp_path / "outputs", tmp_path / "results"
    finish_runs(outputs, [make_record(seed=seed) for seed in (1, 2)])
    finish_runs(outputs, [make_record(experiment="digits")])
    file = next(outputs.glob("airline/*/1/record.json"))
    whole = file.read_bytes()

    def folder() -> None:
        file.unlink()
        file.mkdir()

    def link() -> None:
        file.rmdir()
        file.symlink_to(file)

    damages: list[tuple[Callable[[], object], str]] = [
        (lambda: put(file, b"\xff"), "not a text in UTF-8"),
        (lambda: put(file, b""), "not a JSON object"),
        (lambda: put(file, whole[:99]), "not a JSON object"),
        (lambda: put(file, None), "not a file; repeat the run with force=true"),
        (folder, "not a file"),
        (link, "cannot be read (Too many levels of symbolic links)"),
    ]
    for damage, message in damages:
        damage()
        for command in (["collect", "digits", "airline", "--results", results], ["summary", "airline"]):
            assert said(*command, "--outputs", outputs).startswith(f"error: {file}: {message}"), message
    assert not results.exists()
    file.unlink()
    file.write_bytes(whole)
    assert "another folder with --outputs" in said("collect", "airline", "--outputs", file)
    results.write_text("x")
    line = said("collect", "airline", "--outputs", outputs, "--results", results)
    assert line.startswith(f"error: {results}: cannot be written (Not a directory)")
    with pytest.raises(SystemExit) as end:
        main(["collect", "../airline"])
    assert end.value.code == 2


def test_a_folder_of_runs_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    finish_runs(tmp_path, [make_record()])
    closed, scan = tmp_path / "airline" / "closed", os.scandir
    closed.mkdir()

    def refusing(path: str) -> object:
        if Path(path) == closed:
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refusing)
    line = said("collect", "airline", "--outputs", tmp_path, "--results", tmp_path / "results")
    assert line.startswith(f"error: {closed}: cannot be read (Permission denied); see that you may read it, or name")


def test_what_a_killed_command_has_left_is_put_back_even_by_one_that_fails(small, monkeypatch):
    main(["tables", "--results", str(small)])
    before = content_of(small / "tables")
    (small / "tables").rename(small / ".tables.old")
    (small / ".tables.new").mkdir()
    put(small / RECORDS, "x")
    said("tables", "--results", small)
    assert content_of(small / "tables") == before
    assert not list(small.glob(".*"))

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("reporting.__main__.put_back", interrupted)
    with pytest.raises(SystemExit) as end:
        main(["figures", "--results", str(small)])
    assert end.value.code == 130
