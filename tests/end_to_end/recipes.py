"""The code of docs/recipes.md, and how a command that is refused or printed there is compared."""

import re
import shlex
from typing import NamedTuple

from experiments.identity import ROOT

_FILE = re.compile(r"^`([\w./]+)`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^```console\n\$ (.*?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Recipe(NamedTuple):
    """A section of docs/recipes.md.

    Attributes:
        files: the text of each file, by its name.
        arguments: of the command, after the name of the program.
        printed: what the command prints.
    """

    files: dict[str, str]
    arguments: tuple[str, ...]
    printed: str


def recipes() -> dict[str, Recipe]:
    """The recipes by their headings."""
    found = {}
    for section in (ROOT / "docs" / "recipes.md").read_text().split("\n## ")[1:]:
        command, printed = _COMMAND.search(section).groups()
        arguments = tuple(shlex.split(command.partition(".py ")[2]))
        found[section.partition("\n")[0]] = Recipe(dict(_FILE.findall(section)), arguments, printed)
    return found


def without_numbers(printed: str, folder: object) -> str:
    """Printed lines without what differs between machines: numbers, hashes, and the folder."""
    printed = printed.replace(str(folder), "…")
    return re.sub(r"\d[\d.]*", "#", re.sub(r"-[0-9a-f]{12}\b", "-#", printed))


def refusal(status: int, printed: str) -> str:
    """The one line in which a run that was started says why it stopped."""
    assert status == 1
    assert "Traceback" not in printed
    message, *rest = printed.partition("Error executing job with overrides")[2].splitlines()[1:]
    assert rest == ["", "Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace."]
    return message
