"""Tables in LaTeX."""

import re
import subprocess

import pytest

from reporting.latex import escaped
from tests.reporting.synthetic_results import RESULTS

ARTICLE = r"""\documentclass{article}
\usepackage{booktabs,siunitx}
\begin{document}
\typeout{width of a line: \the\textwidth}
%s
\end{document}
"""


def test_what_means_something_to_latex_is_escaped():
    assert escaped("a_b & 5 % {x} | −1") == r"a\_b \& 5 \% \{x\} \textbar\allowbreak{} $-$1"


def test_the_committed_tables_are_ascii_but_for_comments_and_number_nothing_twice():
    files = sorted((RESULTS / "tables").glob("*.tex"))
    assert files
    for file in files:
        body = "".join(line for line in file.read_text("utf-8").splitlines(True) if not line.startswith("%"))
        assert body.isascii(), file.name
        assert r"\\[" not in body, f"{file.name}: LaTeX reads the bracket as an option of the new line"
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
    assert {table.stem for table in tables} == {file.stem for file in (RESULTS / "tables").glob("*.csv")} - {"verdicts"}
    assert not re.findall(r"Overfull \\hbox.*|.*Float too large.*|Overfull \\vbox.*", log)
