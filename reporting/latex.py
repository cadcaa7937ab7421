"""Tables in LaTeX: they fit a line of 345 pt, the text width of an article, and need booktabs and siunitx."""

import re
from collections.abc import Sequence
from textwrap import wrap

from reporting.columns import Block, Column, packed

# Characters that pdflatex cannot typeset, or that have a special meaning in LaTeX.
_CHARACTERS = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "|": r"\textbar\allowbreak{}", "<": r"\textless{}",
    ">": r"\textgreater{}", "±": r"$\pm$", "−": "$-$", "–": "--", "×": r"$\times$", "≥": r"$\geq$", "≤": r"$\leq$",
    "α": r"$\alpha$", "τ": r"$\tau$",
}  # fmt: skip
_NUMBER = re.compile(r"(?P<sign>[+−]?)(?P<whole>\d+)(\.(?P<part>\d+))?( ± (?P<deviation>[\d.]+))?")
_HEADER = 12  # characters of a column's title in one line
_WIDTH = 95  # characters of a line of a table
_LINES = 46  # lines of tables on a page


def document(name: str, title: str, blocks: Sequence[Block], notes: Sequence[str], comments: Sequence[str]) -> str:
    r"""The blocks of a table as floats with one number: one float for each page that the table needs.

    The notes are printed below the last block, the comments are not printed. `\input` reads the text in a document
    with `\usepackage{booktabs, siunitx}`.
    """
    parts = [part for block in blocks for part in _stacked(block)]
    pages = packed(parts, lambda block: len(block.rows) + 4, _LINES)
    lines = [f"% {comment}" for comment in (r"Needs \usepackage{booktabs, siunitx}.", *comments)]
    for number, own in enumerate(pages):
        first, last = number == 0, number == len(pages) - 1
        lines += [
            r"\begin{table}",
            r"\centering\footnotesize",
            r"\setlength{\tabcolsep}{2.5pt}",
            r"\sisetup{detect-weight, retain-explicit-plus}",
            *([] if first else [r"\addtocounter{table}{-1}"]),
            rf"\caption{{{escaped(title)}}}" if first else rf"\caption[]{{{escaped(title)} (continued)}}",
            *([rf"\label{{tab:{name}}}"] if first else []),
        ]
        for block in own:
            heading = rf"\textit{{{escaped(block.heading)}}}\par\smallskip" if block.heading else ""
            lines.append(rf"\par\medskip{heading}")
            lines += _tabular(block)
        if last:
            lines.append(r"\par\medskip\begin{minipage}{\linewidth}\scriptsize\raggedright")
            lines += [rf"{escaped(note)}\par" for note in notes]
            lines.append(r"\end{minipage}")
        lines.append(r"\end{table}")
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """The text as LaTeX."""
    return "".join(_CHARACTERS.get(character, character) for character in text)


def _stacked(block: Block) -> list[Block]:
    """The block, or parts of it that fit a line; our column stays beside that of the published numbers."""
    pairs: list[list[Column]] = []
    for column in block.columns:
        if pairs and column.title.startswith("ours"):
            pairs[-1].append(column)
        else:
            pairs.append([column])
    lines = packed(pairs, lambda pair: sum(map(_width, pair)), _WIDTH - _width(Column("", block.rows)))
    first, *others = (block._replace(columns=[column for pair in line for column in pair]) for line in lines)
    return [first, *(other._replace(heading="") for other in others)]


def _width(column: Column) -> int:
    """Characters of a column, and a gap."""
    return max(map(len, (*column.cells, *wrap(column.title, _HEADER)))) + 2


def _tabular(block: Block) -> list[str]:
    formats, headers, cells = zip(*map(_typeset, block.columns), strict=True)
    return [
        rf"\begin{{tabular}}{{@{{}}l {' '.join(formats)}@{{}}}}",
        r"\toprule",
        " & ".join(["", *headers]) + r" \\",
        r"\midrule",
        *(" & ".join([escaped(label), *row]) + r" \\" for label, *row in zip(block.rows, *cells, strict=True)),
        r"\bottomrule",
        r"\end{tabular}",
    ]


def _typeset(column: Column) -> tuple[str, str, list[str]]:
    """The format of a column, its header and its cells.

    Numbers stand in a siunitx column as wide as the widest of them, deviations in a small one beside it.
    """
    found = [match for text in column.cells if (match := _NUMBER.fullmatch(text))]
    deviations = any(match["deviation"] for match in found)
    sign = "+" if any(match["sign"] for match in found) else ""
    whole, part = (max((len(match[side] or "") for match in found), default=0) for side in ("whole", "part"))
    form = f"S[table-format={sign}{whole}.{part}]" if found else "r"
    lines = map(escaped, wrap(column.title, _HEADER, break_long_words=False))
    title = r"\shortstack{" + r"\\{}".join(lines) + "}"  # after \\ alone, [95%] would be an option of it
    cells = [_cell(text, row in column.bold, deviations) for row, text in enumerate(column.cells)]
    if deviations:
        return form + r"@{\,}>{\scriptsize}l", rf"\multicolumn{{2}}{{c}}{{{title}}}", cells
    return form, f"{{{title}}}", cells


def _cell(text: str, is_bold: bool, deviations: bool) -> str:
    bold = r"\bfseries " if is_bold else ""
    mean, _, deviation = text.partition(" ± ")
    shown = bold + mean.replace("−", "-") if _NUMBER.fullmatch(text) else f"{{{bold}{escaped(text)}}}"
    if not deviations:
        return shown
    return f"{shown} & {escaped('± ')}{deviation}" if deviation else f"{shown} &"
