"""The recipes of docs/how_to, and how a command that is refused or printed there is compared."""

import re
import shlex
from typing import NamedTuple

from experiments.identity import ROOT

PAGES = sorted((ROOT / "docs" / "how_to").glob("*.md"))
_FILE = re.compile(r"^`([\w./]+)`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^```console\n\$ (.*?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Recipe(NamedTuple):
    """A section of a page of docs/how_to: files, and a command that uses them."""

    files: dict[str, str]  # the text of each file, by its name
    arguments: tuple[str, ...]  # of the command, after the name of the program
    printed: str  # by the command


def recipes() -> dict[str, Recipe]:
    """The recipes by their headings."""
    found = {}
    texts = (page.read_text().replace("\\\n", " ") for page in PAGES)
    for section in (section for text in texts for section in text.split("\n## ")[1:]):
        if (files := dict(_FILE.findall(section))) and (shown := _COMMAND.search(section)):
            command, printed = shown.groups()
            found[section.partition("\n")[0]] = Recipe(files, tuple(shlex.split(command.partition(".py ")[2])), printed)
    return found


def without_numbers(printed: str, folder: object) -> str:
    """Printed lines without what differs between machines: numbers, hashes, and the folder."""
    printed = printed.replace(str(folder), "…")
    return re.sub(r"\d[\d.]*", "#", re.sub(r"-[0-9a-f]{12}\b", "-#", printed))


def refusal(status: int, printed: str) -> str:
    """The one line in which a run says why it is refused."""
    assert status == 1
    (message,) = printed.splitlines()
    return message
