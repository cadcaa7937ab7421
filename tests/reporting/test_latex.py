"""Tables in LaTeX."""

import re
import subprocess

import pytest

from reporting.columns import Block, Column
from reporting.latex import document, escaped
from tests.reporting.synthetic_results import RESULTS

ARTICLE = r"""\documentclass{article}
\usepackage{booktabs,siunitx}
\begin{document}
\typeout{width of a line: \the\textwidth}
%s
\end{document}
"""


def laid_out(*columns, rows=("softmax",)):
    return document("t", "A title", [Block("A heading", list(rows), list(columns))], ["A note: 5 % of α."], ["Code: x"])


def test_numbers_are_aligned_by_siunitx_and_the_best_is_bold():
    cells = ["0.789 ± 0.002", "0.790 ± 0.001", "–"]
    text = laid_out(Column("ours", cells, frozenset({1})), Column("difference", ["−0.10", "+1.20", "–"]), rows="abc")
    assert r"\begin{tabular}{@{}l S[table-format=1.3]@{\,}>{\scriptsize}l S[table-format=+1.2]@{}}" in text
    assert r"a & 0.789 & $\pm$ 0.002 & -0.10 \\" in text
    assert r"b & \bfseries 0.790 & $\pm$ 0.001 & +1.20 \\" in text
    assert r"c & {--} & & {--} \\" in text


def test_the_caption_is_short_notes_stand_below_and_the_rest_is_comment():
    text = laid_out(Column("ours", ["1.0"]))
    assert r"\caption{A title}" in text
    assert "\\scriptsize\\raggedright\nA note: 5 \\% of $\\alpha$.\\par" in text
    assert "\n% Code: x\n" in text
    assert "A heading" not in text  # a block that is alone needs none


def test_what_does_not_fit_on_a_page_goes_on_under_the_same_number():
    block = Block("A heading", [f"row {number}" for number in range(30)], [Column("ours", ["1.0"] * 30)])
    text = document("t", "A title", [block, block], ["A note"], [])
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == 2
    assert text.count(r"\label") == 1
    assert r"\addtocounter{table}{-1}" + "\n" + r"\caption[]{A title (continued)}" in text
    assert text.index("A note") > text.index("(continued)")


def test_what_means_something_to_latex_is_escaped():
    assert escaped("a_b & 5 % {x} | −1") == r"a\_b \& 5 \% \{x\} \textbar\allowbreak{} $-$1"


def test_the_committed_tables_are_ascii_but_for_comments_and_number_nothing_twice():
    files = sorted((RESULTS / "tables").glob("*.tex"))
    assert files
    for file in files:
        body = "".join(line for line in file.read_text("utf-8").splitlines(True) if not line.startswith("%"))
        assert body.isascii(), file.name
        (caption,) = re.findall(r"\\caption\{(.*)\}", body)
        assert "Table" not in caption
        assert len(caption) <= 70


@pytest.mark.slow  # needs LaTeX
def test_every_committed_table_fits_the_page(tmp_path):
    tables = sorted((RESULTS / "tables").glob("*.tex"))
    body = "\n".join(rf"\input{{{table}}}\clearpage" for table in tables)
    (tmp_path / "all.tex").write_text(ARTICLE % body, "utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace", check=False)
    log = (tmp_path / "all.log").read_text("latin-1")
    assert done.returncode == 0, done.stdout[-2000:]
    assert "width of a line: 345.0pt" in log
    assert len(tables) == 18
    assert not re.findall(r"Overfull \\hbox.*|.*Float too large.*|Overfull \\vbox.*", log)
