"""The frame of the studies, by a study of its own that lies in the folder `coins`."""

import re
import shutil
from pathlib import Path

import pandas as pd
import pytest
import yaml

import studies
import studies.comparison  # while the package is where it is
from experiments.errors import UserError
from reporting.text.marked_text import marks
from studies import __main__ as command
from studies import tasks
from studies.pages import COMMAND, rebuild_pages
from studies.study import available_studies, load_study

ROOT = Path(__file__).parents[2]
COINS = Path(__file__).with_name("coins")


@pytest.fixture
def coins(tmp_path, monkeypatch):
    """A folder to work in, with a page of findings, where `coins` is the only study."""
    monkeypatch.setattr(studies, "__path__", [str(COINS)])
    monkeypatch.delitem(__import__("sys").modules, "studies.coins", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    begin, end = marks("studies", COMMAND)
    listed = "| [Coins](studies/coins.md) | Which coin wins? | … |"
    command.PAGE.write_text(f"Before.\n\n{listed}\n\n{begin}\nold\n{end}\n\nAfter.\n")
    return tmp_path


def run(*arguments):
    command.main(["coins", "--jobs", "1", *arguments])


def test_a_study_leaves_records_their_origin_tables_and_a_finding(coins):
    run()
    records = pd.read_csv("results/studies/coins.csv")
    assert records[["data_set", "contender", "value"]].to_numpy().tolist()[:2] == [
        ["a", "ours", 0.25],
        ["a", "theirs", 0.5],
    ]
    assert Path("results/studies/coins.csv").stat().st_mtime_ns <= Path("results/studies/coins.yaml").stat().st_mtime_ns
    source = yaml.safe_load(Path("results/studies/coins.yaml").read_text())
    assert source["settings"] == load_study("coins").settings
    assert source["repeat"] == "make study-coins"
    assert source["packages"]["torch"]
    table = Path("results/studies/coins.md").read_text()
    assert table.startswith("# Coins\n\n**Asked.** Which coin wins?\n\n## Means\n\n")
    assert "**Found.** [Verdicts](../../docs/studies.md#all-verdicts): 1 no gain." in table
    assert "A note." in table
    cells = pd.read_csv("results/studies/coins_tables.csv").to_numpy().tolist()
    means = [["Means", "ours", "value", pytest.approx(0.875 / 3)], ["Means", "theirs", "value", 1.75 / 3]]
    assert cells == means + 2 * [["Equal", "x", "sides", 2.0]]
    page = command.PAGE.read_text()
    assert page.startswith("Before.")
    assert page.endswith("After.\n")
    assert "−0.2917 [−0.7660, +0.1827]" in page
    assert "| no gain" in page


def test_a_study_that_failed_goes_on_with_the_tasks_that_are_left(coins):
    Path("failing").touch()
    with pytest.raises(RuntimeError, match="the coin is lost") as failed:
        run()
    assert failed.value.__notes__ == ["in the task {'data_set': 'b'} of the study coins"]
    Path("failing").unlink()
    run()
    assert Path("measured").read_text() == "ab" + "bc"
    run()
    assert Path("measured").read_text() == "abbc"


def test_no_task_that_other_code_measured_is_among_the_records(coins, monkeypatch):
    run()
    other = tasks.code_of({}) | {"digest": "0" * 64}
    monkeypatch.setattr(tasks, "code_of", lambda settings: other)
    run()
    assert Path("measured").read_text() == "abc" + "abc"
    assert yaml.safe_load(Path("results/studies/coins.yaml").read_text())["digest"] == ["0" * 12]


def test_a_study_without_a_question_on_the_page_is_told_which_row_to_add(coins):
    command.PAGE.write_text(command.PAGE.read_text().replace("(studies/coins.md)", ""))
    with pytest.raises(UserError, match=r"add the row: \| \[TITLE\]\(studies/coins\.md\) \| QUESTION \|"):
        run()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dice"], "there is no study dice; there are coins"),
        (["coins", "--jobs", "0"], "--jobs=0 is not allowed; it must be 1 or more"),
        ([], "there is no docs/studies.md; start it in"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_measured(coins, capsys, arguments, message):
    if not arguments:
        command.PAGE.unlink()
    with pytest.raises(SystemExit):
        command.main(arguments)
    assert message in capsys.readouterr().err


@pytest.mark.medium
def test_the_committed_pages_are_those_of_the_committed_records(tmp_path):
    shutil.copytree(ROOT / "results" / "studies", tmp_path / "studies", dirs_exist_ok=True)
    shutil.copy(ROOT / command.PAGE, page := tmp_path / "findings.md")
    rebuild_pages(tmp_path / "studies", page, command.RESULTS)
    assert page.read_text() == (ROOT / command.PAGE).read_text()
    committed = ROOT / "results" / "studies"
    assert sorted(path.stem for path in committed.glob("*.md")) == sorted(available_studies())
    for path in (*committed.glob("*.md"), *committed.glob("*_tables.csv")):
        assert (tmp_path / "studies" / path.name).read_text() == path.read_text()


@pytest.mark.parametrize(
    "page", [command.PAGE, *(command.RESULTS / f"{name}.md" for name in available_studies())], ids=str
)
def test_titles_and_tables_of_a_page_have_words_in_place_of_names_of_the_records(page):
    shown = [line for line in (ROOT / page).read_text().splitlines() if line.startswith(("#", "|"))]
    named = re.compile(r"(?<![\w/`])[a-z0-9]+_\w+")  # names in code and in addresses stay
    assert [found[0] for line in shown for found in named.finditer(line)] == []


@pytest.mark.parametrize("name", available_studies())
def test_every_study_has_a_page_and_a_place_in_the_table_of_findings(name):
    assert f"results/studies/{name}.md" in (ROOT / "docs" / "studies" / f"{name}.md").read_text()
    listed, _, _ = (ROOT / command.PAGE).read_text().partition("## All verdicts")
    assert f"(studies/{name}.md)" in listed
    assert load_study(name).title
