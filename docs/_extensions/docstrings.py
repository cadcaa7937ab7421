"""The library's docstrings on the site: names and cited sections become links, and typed formulas real ones.

Our docstrings are plain text that `help()` prints: `name` in single backquotes, formulas in indented lines, and
"docs/math.md, section 2" for a section of that page. This module rewrites them as reStructuredText before napoleon
reads their sections. A public name without a docstring is a warning, which fails the build. The pages of docs/api give
the formulas in LaTeX, below the names; they take the places of the typed ones.
"""

import importlib
import pkgutil
import re
from functools import cache
from typing import Any

from docutils import nodes
from sphinx.addnodes import desc_content
from sphinx.application import Sphinx
from sphinx.util import logging

import sharmix

MATHEMATICS = "docs/math"  # the page whose sections docstrings cite by number

CITATION = re.compile(r"docs/math\.md,\s+sections?\s+(\d+(?:(?:,| and)\s+\d+)*)")
_MARKUP = re.compile(
    rf"(?P<citation>{CITATION.pattern})|`(?P<quoted>[^`]+)`"
    r"|(?P<special>[*|\\]|\b_\B)"  # what reStructuredText would read as its own
)
_SECTION = re.compile(r"[A-Z]\w+:\n")  # such as "Args:"
_SENTENCE = re.compile(r"(Returns, Raises|Source): ")  # a section in one paragraph
_NUMBERED = re.compile(r"(\d+)\. ")
_logger = logging.getLogger(__name__)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", _process, priority=400)  # napoleon has 500
    app.connect("doctree-read", _label_sections)
    app.connect("doctree-read", _typeset_formulas)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


@cache
def public_names() -> dict[str, str]:
    """The full name of every public name: what `__all__` lists in sharmix and in its public modules."""
    found = (module.name for module in pkgutil.walk_packages(sharmix.__path__, "sharmix."))
    modules = [name for name in found if "._" not in name]
    names = {}
    for module in [*modules, "sharmix"]:
        for name in getattr(importlib.import_module(module), "__all__", ()):
            names[name] = f"{module}.{name}"
    return names


def rewritten(docstring: str) -> str:
    """A docstring as reStructuredText with napoleon's sections."""
    blocks = docstring.split("\n\n")
    in_section = False
    for number, block in enumerate(blocks):
        in_section = bool(_SECTION.match(block)) or (in_section and block.startswith(" "))
        if block.startswith("    ") and not in_section:
            blocks[number] = f".. code-block:: text\n    :class: formula\n\n{block}"
        elif ">>>" not in block:
            heading = _SENTENCE.match(block)
            start = heading.end() if heading else 0
            blocks[number] = (f"**{heading[1]}.** " if heading else "") + _MARKUP.sub(_marked_up, block[start:])
    return "\n\n".join(blocks)


def _process(app: Sphinx, what: str, name: str, found: Any, options: Any, lines: list[str]) -> None:
    if not any(lines):
        _logger.warning("%s has no docstring", name)
    lines[:] = rewritten("\n".join(lines)).split("\n")


def _marked_up(found: re.Match[str]) -> str:
    if found["special"]:
        return f"\\{found['special']}"
    if found["citation"]:
        numbers = re.findall(r"\d+", found["citation"])
        return ", ".join(f":ref:`math section {number} <math-section-{number}>`" for number in numbers)
    name = found["quoted"].removeprefix("sharmix.") if found["quoted"] != "sharmix" else "sharmix"
    short = name.rpartition(".")[2]
    full = public_names().get(short)
    if full and full.endswith(f".{name}"):
        return f":py:obj:`{found['quoted']} <{full}>`"
    return f"``{found['quoted']}``"


def _label_sections(app: Sphinx, doctree: nodes.document) -> None:
    """Give the numbered sections of the mathematics the labels that citations link to."""
    if app.env.docname != MATHEMATICS:
        return
    for section in doctree.findall(nodes.section):
        title = section[0].astext()
        if found := _NUMBERED.match(title):
            labels = app.env.domains.standard_domain.anonlabels  # those of links with a text of their own
            labels[f"math-section-{found[1]}"] = MATHEMATICS, section["ids"][0]


def _typeset_formulas(app: Sphinx, doctree: nodes.document) -> None:
    """Put each formula that a page gives with a name in the place of the one that the docstring types."""
    for content in doctree.findall(desc_content):
        typed = [child for child in content if "formula" in child["classes"]]
        given = [child for child in content if isinstance(child, nodes.math_block)]
        for text, formula in zip(typed, given, strict=False):
            content.remove(formula)
            content.replace(text, formula)
