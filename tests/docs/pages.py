"""The pages that people write, README.md, CONTRIBUTING.md and docs/, and what stands in their code blocks."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(file for file in (ROOT / "docs").rglob("*.md") if "gallery" not in file.parts),
]
TUTORIALS = ROOT / "docs" / "tutorials"  # notebooks, which run while the site is built
SHELL = ("", "bash", "console", "sh", "shell", "text")

_FILE = re.compile(r"`([\w./]+)`:$")


class Block(NamedTuple):
    """A fenced code block.

    Attributes:
        language: what stands behind the fence.
        code: its lines.
        line: where it begins in its page.
        file: the name of the file that the paragraph above says it is, such as "`flowers.py`:"; else empty.
    """

    language: str
    code: str
    line: int
    file: str


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
