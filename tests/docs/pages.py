"""The pages that people write, at the top, in data/, outputs/ and docs/: code blocks, links, headings, and tests."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from markdown_it import MarkdownIt

from experiments.identity import ROOT

DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "data" / "README.md",
    ROOT / "outputs" / "README.md",
    *sorted(file for file in DOCS.rglob("*.md") if "gallery" not in file.parts),
]
TUTORIALS = DOCS / "tutorials"  # notebooks, which run while the site is built
PUBLIC_NAME = re.compile(r"^\.\. auto(?:class|function):: (sharmix\.(?!_)\S+)", re.MULTILINE)  # on a page of the API
MADE_LATER = ("playground.html", "report.html")  # by `make site`, after Sphinx
SHELL = ("", "bash", "console", "sh", "shell", "text")

_FILE = re.compile(r"`([\w./]+)`:$")


class Block(NamedTuple):
    """A fenced code block."""

    language: str  # what stands behind the fence
    code: str
    line: int  # where it begins in its page
    file: str  # the name of the file that the paragraph above says it is, such as "`flowers.py`:"; else empty


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> Iterator[Block]:
    above = ""
    for token in MarkdownIt().parse(page.read_text(encoding="utf-8")):
        if token.type == "fence":
            file = _FILE.search(above)
            yield Block(token.info.strip(), token.content, token.map[0] + 1, file[1] if file else "")
        above = token.content if token.type == "inline" else above if token.type == "paragraph_close" else ""


def command_lines(page: Path) -> Iterator[str]:
    """The lines of the shell's blocks, without prompts; and all that is `code` in text."""
    for token in MarkdownIt().parse(page.read_text(encoding="utf-8")):
        if token.type == "fence" and token.info.strip() in SHELL:
            yield from (line.removeprefix("$ ") for line in token.content.replace("\\\n", " ").splitlines())
        for child in token.children or ():
            if child.type == "code_inline":
                yield child.content


def links(page: Path) -> Iterator[tuple[Path, str]]:
    """The files of the repository that a page links to, each with the section of the link, or an empty text."""
    for token in MarkdownIt().parse(page.read_text(encoding="utf-8")):
        for child in token.children or ():
            link = unquote(str(child.attrGet("href") or ""))
            if link and "://" not in link and not link.startswith("mailto:"):
                target, _, section = link.partition("#")
                yield page.parent / target if target else page, section


@cache
def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and MyST make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@cache
def names_of_tests(folder: str) -> set[str]:
    """The names of all test functions below a folder of the repository."""
    return {
        test
        for file in (ROOT / folder).rglob("*.py")
        for test in re.findall(r"def (test_\w+)", file.read_text("utf-8"))
    }
