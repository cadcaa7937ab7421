"""The printed summary of experiments."""

import io
import re

import pytest
from rich.console import Console

from reporting.__main__ import main
from reporting.records.declaration import SETTINGS
from reporting.summary import best_activation, summarise, tables
from tests.reporting.synthetic_records import changed, finish_runs, grouped, keep_records, make_record, of_other_code
from tests.reporting.synthetic_results import both, small_records

SHOTS = {"shot_rule": "many > 100, few < 20 training examples"}


@pytest.fixture
def records():
    return [
        make_record(name, seed, "digits", test={"accuracy": 0.9 + seed / 100, "sparsity": sparsity}, **parameters)
        for name, sparsity, parameters in (
            ("sharmix_learned", 0.2, {"q": 1.25, "r": 1.5}),
            ("softmax", 0.0, {}),
            ("entmax", 0.25, {"alpha": 1.5}),
        )
        for seed in (1, 2, 3)
    ]


@pytest.fixture
def long_tailed():
    shots = {"many_accuracy": 0.9, "medium_accuracy": 0.7, "few_accuracy": 0.4}
    return [make_record("softmax", seed, "digits_lt", {"accuracy": 0.8, **shots}, facts=SHOTS) for seed in (1, 2)]


def printed(*experiments, width=140):
    console = Console(file=io.StringIO(), width=width)
    for records in experiments:
        for table in tables(records[0]["experiment"], *grouped(records), width):
            console.print(table)
    return console.file.getvalue()


def rows_of(text):
    return [re.split(r"\s{2,}", line.strip()) for line in text.splitlines() if re.search(r"\d\.\d{3}", line)]


def test_the_table_holds_means_over_seeds_softmax_first(records):
    rows = [row for row in rows_of(printed(records)) if "±" in " ".join(row)]
    assert [row[0] for row in rows] == ["softmax", "entmax (α = 1.5)", "SharMiX learned (1.25, 1.50)"]
    assert rows[2][1] == "0.920 ±0.010"
    assert rows[2][3] == "0.200 ±0.000"
    assert rows[2][-1] == "3"


def test_a_long_tail_has_a_table_of_its_groups_and_says_their_rule(records, long_tailed):
    assert "Many" not in printed(records)
    text = printed(long_tailed)
    groups = text[text.index("digits_lt, test accuracy") :]
    assert SHOTS["shot_rule"] in " ".join(groups.split())
    assert "activation All Many Medium Few seeds" in " ".join(groups.split())
    assert rows_of(groups) == [["softmax", "0.800 ±0.000", "0.900 ±0.000", "0.700 ±0.000", "0.400 ±0.000", "2"]]


@pytest.mark.parametrize("split", ["validation", "dev"])
def test_where_all_runs_have_a_split_to_choose_by_its_table_comes_first(records, split):
    assert f"{split} split" not in printed(records)
    for record in records:
        record["metrics"][split] = {"accuracy": 0.8}
        record["curves"][-1][f"{split}/accuracy"] = 0.8
    text = printed(records)
    assert text.index(f"digits, {split} split") < text.index("digits, test split")
    assert [row[1] for row in rows_of(text)[:3]] == ["0.800 ±0.000"] * 3
    del records[0]["metrics"][split]
    assert f"{split} split" not in printed(records)


def test_in_a_narrow_terminal_each_activation_has_one_row_of_the_first_metrics(records, long_tailed):
    text = printed(records, long_tailed, width=80)
    assert max(map(len, text.splitlines())) <= 80
    rows = rows_of(text)
    assert [row[0] for row in rows] == ["softmax", "entmax (α = 1.5)", "SharMiX learned (1.25, 1.50)", *["softmax"] * 2]
    assert rows[2][1:] == ["0.920 ±0.010", "0.700 ±0.000", "0.200 ±0.000", "3"]
    assert "No room for: support, coverage, Brier score." in text
    groups = rows_of(printed(long_tailed, width=60))[1]
    assert groups == ["softmax", "0.800", "0.900", "0.700", "0.400", "2"]


@pytest.mark.medium
def test_runs_of_different_code_are_averaged_with_a_warning(records, tmp_path):
    def said():
        console = Console(file=io.StringIO(), width=1000)
        summarise(["digits"], tmp_path, tmp_path, SETTINGS, console)
        return [line for line in console.file.getvalue().splitlines() if line.startswith("warning: ")]

    finish_runs(tmp_path, records)
    assert said() == []
    finish_runs(tmp_path, [*records[:4], of_other_code(records[4])])
    (warning,) = said()
    assert "8 runs; digest 0ther, commit c0ffee, clean: softmax seed 2; repeat them with force=true" in warning


def test_a_published_range_is_shown_as_a_range(small, capsys):
    paper = small / "published" / "paper.yaml"
    paper.write_text(paper.read_text("utf-8").replace("[0.893, 0.007]", "{low: 0.85, high: 0.95}"), "utf-8")
    finish_runs(small / "outputs", [make_record("softmax", 1)])
    main(["summary", "airline", "--outputs", str(small / "outputs"), *both(small)])
    assert re.search(r"accuracy, test +0\.850 to 0\.950 ", capsys.readouterr().out)


def test_a_table_of_the_paper_shows_theirs_recorded_and_yours(small, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    keep_records(small, [r for r in small_records() if r["config"]["activation"]["name"] != "entmax"])
    yours = [make_record("softmax", seed, test={"accuracy": 0.75}) for seed in (1, 2)]
    finish_runs(small / "outputs", [*yours, make_record("entmax", 1, alpha=1.5)])
    folders = "--outputs", str(small / "outputs"), *both(small)
    main(["summary", "airline", *folders])
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == f"Figures: python -m reporting report --outputs {small / 'outputs'}"
    table = out.partition("A small table: theirs, recorded, yours")[2]
    rows = [re.split(r"\s{2,}", line.strip()) for line in table.splitlines() if "accuracy, test" in line]
    assert rows == [
        ["softmax", "accuracy, test", "0.893 ± 0.007", "0.800 ± 0.003", "0.750 ± 0.000 (2 of 5 seeds)"],
        ["entmax (α = 1.5)", "accuracy, test", "–", "–", "0.800 (1 of 5 seeds)"],
    ]
    assert "Left out: 1 of 3 rows, of which you have no runs." in table
    (small / "records" / "airline.jsonl").unlink()
    main(["summary", "airline", *folders])
    assert re.search(r"0\.893 ± 0\.007 +– +0\.750", capsys.readouterr().out)


@pytest.mark.medium
def test_the_projects_records_are_found_from_any_folder(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.chdir(tmp_path)
    finish_runs(tmp_path / "outputs", [make_record("softmax")])
    main(["summary", "airline"])
    assert re.search(
        r"softmax +accuracy, test +0\.893 ± 0\.007 +0\.\d+ ± 0\.\d+ +0\.800 \(1 of 5 seeds\)", capsys.readouterr().out
    )


def against_softmax(gains, rates=(0.01, 0.01), seeds=3, **others):
    """Softmax at the first rate; 1.5-entmax, ahead of it by the gain of each seed, and the others at the second."""
    softmax = [make_record("softmax", seed, "digits") for seed in range(seeds)]
    others = {"entmax": {"alpha": 1.5}} | others
    rest = [
        make_record(name, seed, "digits", {"accuracy": 0.8 + gain - 0.005 * place}, **parameters)
        for place, (name, parameters) in enumerate(others.items())
        for seed, gain in enumerate(gains)
    ]
    (groups,) = grouped(
        [
            changed(run, optimizer={"learning_rate": rate})
            for rate, runs in zip(rates, (softmax, rest), strict=True)
            for run in runs
        ]
    )
    return groups


def test_a_sentence_says_where_the_best_activation_is_beside_softmax():
    basis = "(95% interval by Student's t, 3 seeds, one learning rate for all)"
    cases = [
        ([0.019, 0.02, 0.021], "is ahead of softmax: +2.00 [+1.75, +2.25] points of accuracy"),
        ([-0.019, -0.02, -0.021], "is behind softmax: −2.00 [−2.25, −1.75] points of accuracy"),
        ([0.01, -0.01, 0.0], "is not shown to differ from softmax: +0.00 [−2.48, +2.48] points of accuracy"),
    ]
    for gains, said in cases:
        assert best_activation("digits", against_softmax(gains), 0.95) == f"digits: entmax (α = 1.5) {said} {basis}."
    assert "softmax with the same seed; one seed decides nothing" in best_activation(
        "digits", against_softmax([0.01], seeds=1), 0.95
    )
    assert best_activation("digits", *grouped([make_record("softmax", 1, "digits")]), 0.95) is None


def test_there_is_no_sentence_without_two_numbers_of_one_seed():
    entmax = make_record("entmax", 2, "digits", alpha=1.5)
    softmax = make_record("softmax", 1, "digits")
    assert best_activation("digits", *grouped([softmax, entmax]), 0.95) is None
    other = changed(make_record("softmax", 2, "digits"), optimizer={"learning_rate": 0.1})
    assert best_activation("digits", *grouped([softmax, other, entmax]), 0.95) is None
    for record in (softmax, entmax):
        for row in (*record["curves"], record["metrics"]["test"]):
            row.pop("test/accuracy", None)
            row.pop("accuracy", None)
    assert best_activation("digits", *grouped([softmax, entmax | {"seed": 1}]), 0.95) is None


def test_translations_are_compared_by_bleu():
    records = [make_record(name, 1, "copy", {"bleu": bleu}) for name, bleu in (("softmax", 30.0), ("sparsemax", 31.0))]
    assert "sparsemax is +1.00 BLEU from softmax" in best_activation("copy", *grouped(records), 0.95)


def test_the_sentence_names_what_weakens_it():
    gains = [0.019, 0.02, 0.021]
    several = best_activation("digits", against_softmax(gains, sparsemax={}), 0.95)
    assert "entmax (α = 1.5), the best of 2, is ahead" in several
    assert several.endswith("; the best of several looks better than it is).")
    assert "learning rate" not in best_activation("digits", against_softmax(gains, rates=(0.01, 0.1)), 0.95)
    assert "3 seeds of 4, those that both have" in best_activation("digits", against_softmax(gains, seeds=4), 0.95)


def test_an_activation_of_fewer_seeds_is_not_the_best_by_luck():
    softmax = [make_record("softmax", seed, "digits") for seed in range(3)]
    entmax = [make_record("entmax", seed, "digits", {"accuracy": 0.82 + seed / 1000}, alpha=1.5) for seed in range(3)]
    lucky = [make_record("sparsemax", seed, "digits", {"accuracy": 0.9 - 0.1 * seed}) for seed in range(3)]
    said = best_activation("digits", *grouped([*softmax, *entmax, lucky[0]]), 0.95)
    assert "entmax (α = 1.5) is ahead of softmax" in said
    said = best_activation("digits", *grouped([*softmax, *entmax, *lucky]), 0.95)  # nor by one lucky seed of three
    assert "entmax (α = 1.5), the best of 2, is ahead of softmax" in said


@pytest.mark.parametrize("columns", ["120", None])
def test_every_line_fits_a_terminal_and_a_pipe(small, capsys, monkeypatch, columns):
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns:
        monkeypatch.setenv("COLUMNS", columns)
    yours = [*small_records(), of_other_code(make_record("sparsemax", 1)), make_record("sharmix_fixed", q=1.25, r=1.5)]
    finish_runs(small / "outputs", yours)
    main(["summary", "airline", "--outputs", str(small / "outputs"), *both(small)])
    *lines, _ = capsys.readouterr().out.splitlines()  # the last line holds a path, which no line breaks
    assert "is ahead of softmax" in " ".join(line.strip() for line in lines)
    assert max(map(len, lines)) <= 120
