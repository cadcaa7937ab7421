"""The generated parts of README.md and docs/: what is committed is what results/ gives, and wrong marks are refused."""

import re
import shutil

import pandas as pd
import pytest

from experiments.identity import ROOT
from reporting.generated_parts import COMMAND, rewritten_pages, write_pages
from reporting.generated_parts.gpu_times import tabulate_gpu_times
from reporting.generated_parts.measured_times import list_measured_times
from reporting.records.declaration import load_declaration
from reporting.records.yaml_files import TableError
from reporting.text.marked_text import fill, marks


@pytest.mark.medium
def test_the_committed_pages_are_those_of_the_committed_results():
    pages = rewritten_pages(ROOT)
    assert {ROOT / "README.md", ROOT / "docs" / "findings.md"} <= set(pages)
    differing = [page for page, text in pages.items() if text != page.read_text("utf-8")]
    assert not differing, "run `make tables`, and commit what it writes"


@pytest.mark.parametrize("part", ["maps", "losses"])
def test_times_on_a_gpu_of_the_same_size_at_two_scales_have_a_table_each(part):
    tables = tabulate_gpu_times(ROOT, "", part).split("\n\n")
    for scale in ("2", "0.05"):
        (table,) = (one for one in tables if f"float32, scale {scale}, H100" in one)
        assert "| 4,096 × 32,000 " in table


def test_a_part_of_the_times_on_a_gpu_that_is_not_recorded_says_so(tmp_path):
    assert tabulate_gpu_times(tmp_path, "", "attention").startswith("Not yet measured: `make gpu`")


def test_the_bound_on_a_gpu_is_relative_to_the_baseline_too(tmp_path):
    rows = pd.read_csv(ROOT / "results/benchmarks/gpu_losses.csv").assign(bound_microseconds=100.0)
    folder = tmp_path / "results" / "benchmarks"
    folder.mkdir(parents=True)
    rows.head(3).assign(median_microseconds=[400.0, 200.0, 100.0]).to_csv(folder / "gpu_losses.csv")
    table = tabulate_gpu_times(tmp_path, "", "losses").split("\n\n")[0]
    assert [cell.strip() for cell in table.splitlines()[-1].split("|")[1:3]] == ["bound", "0.25"]


@pytest.fixture
def repository(tmp_path):
    """A repository with a page of each generated part that reads the verdicts."""
    (tmp_path / "docs" / "deep").mkdir(parents=True)
    shutil.copytree(ROOT / "results" / "tables", tmp_path / "results" / "tables")
    shutil.copytree(ROOT / "conf" / "reporting", tmp_path / "conf" / "reporting")
    (tmp_path / "README.md").write_text(page("verdict"))
    (tmp_path / "docs" / "deep" / "questions.md").write_text(page("questions"))
    (tmp_path / "docs" / "plain.md").write_text("Written by hand.\n")
    return tmp_path


def page(name):
    return "Before.\n\n{}\nold\n{}\n\nAfter.\n".format(*marks(name, COMMAND))


def test_the_sentence_follows_the_verdicts(repository):
    path = repository / "results" / "tables" / "verdicts.csv"
    pd.read_csv(path).head(4).assign(
        verdict=["does not reproduce", "direction only", "open: too few seeds", "open: epoch not reached"],
        claim=["first", "first", "second", "third"],
        kind="difference",
        published=[1.7, -1.4, 0.2, 3.0],
        test_mean=[0.5, -0.25, 0.125, None],
        test_seeds=[5, 5, 1, 0],
        near_when=["the clamp", "not found", "", ""],
    ).to_csv(path, index=False)
    readme, questions = (written.read_text() for written in write_pages(repository))
    assert readme.startswith("Before.\n\n")
    assert readme.endswith("\n\nAfter.\n")
    assert "Of 4 published numbers" in readme
    assert "1 does not reproduce under the recipe that we chose where the paper is silent, 0 do, 1 does in" in readme
    assert "Of the 1, some come near ours under a hypothesis about how they were made: 1 (the clamp). 0 do" in readme
    assert "(../../results/tables/verdicts.md)" in questions
    assert [written.read_text() for written in write_pages(repository)] == [readme, questions]
    assert (repository / "docs" / "plain.md").read_text() == "Written by hand.\n"


@pytest.mark.medium
def test_a_question_has_the_mark_and_the_numbers_of_its_claim(repository):
    (repository / "README.md").write_text(page("questions"))
    lines = [line for line in write_pages(repository)[0].read_text().splitlines() if line.startswith("- ")]
    declaration = load_declaration(repository / "conf" / "reporting")
    verdicts = pd.read_csv(repository / "results" / "tables" / "verdicts.csv").set_index(["claim", "row"])
    for line, question in zip(lines, declaration.questions, strict=True):
        start = f"**{question.text}** "
        if question.claim is None:
            assert line == f"- ? {start}Open. {question.reason}"
        else:
            found = verdicts.loc[question.claim, declaration.tables[question.table].labels()[question.row]]
            shown = f"{found['published']:+.2f}" if found["kind"] == "difference" else f"{found['published']:.3f}"
            answers = {"r": ("✓", "Yes"), "d": ("✗", "No"), "o": ("?", "Open"), "n": ("?", "Not shown")}
            mark, answer = answers[found["verdict"][0]]
            assert line.startswith(f"- {mark} {start}{answer} ({question.number}: theirs {shown}")
            assert line.endswith(question.reason)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ("weather", "nothing writes the part 'weather'; there are questions, verdict"),
        pytest.param(
            *("table weather accuracy", "there is no table 'weather' in tables.yaml; it has table1, "),
            marks=pytest.mark.medium,
        ),
        ("table table4 accuracy on", "table4.md: which heading is 'accuracy on'"),
        ("settings untold", "its header has no line `# time: …`"),
    ],
)
def test_a_part_that_cannot_be_written_is_refused_with_its_page(repository, part, message):
    (repository / "README.md").write_text(page(part))
    untold = repository / "conf" / "experiment" / "untold.yaml"
    untold.parent.mkdir()
    untold.write_text("# command: python run.py\n")
    with pytest.raises(TableError, match=rf"README\.md: .*{re.escape(message)}"):
        write_pages(repository)


def test_the_gain_over_the_entmax_package_is_that_of_the_page_it_links_to():
    page = (ROOT / "results" / "benchmarks" / "maps.md").read_text("utf-8")
    case = r"\| loss of 512 × 32000, sparse +\| (\d+) +\|"
    assert f"**{re.search(case, page)[1]}** times faster than `Entmax15Loss`" in list_measured_times(ROOT, "")


@pytest.mark.parametrize("spoil", [lambda text: text.partition("<!-- a: end")[0], lambda text: text * 2])
def test_marks_that_do_not_match_are_refused(spoil):
    with pytest.raises(TableError, match="the part 'a' should stand once between"):
        fill(spoil(page("a")), COMMAND, str.upper)
