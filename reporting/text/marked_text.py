"""Parts of a page that a command writes. Each part stands between two marks; the rest is written by hand."""

import re
from collections.abc import Callable

from reporting.records.yaml_files import TableError


def marks(name: str, command: str) -> tuple[str, str]:
    """The comments between which `command` writes the part `name` of a page."""
    return f"<!-- {name}: begin, written by {command} -->", f"<!-- {name}: end -->"


def parts(text: str, command: str) -> list[str]:
    """Names of the parts that `command` writes into a page."""
    return re.findall(rf"<!-- (.+?): begin, written by {re.escape(command)} -->", text)


def fill(text: str, command: str, write: Callable[[str], str]) -> str:
    """The page with new text, from `write`, in every part that `command` writes.

    Raises:
        TableError: for a part that does not end, or stands in the page twice.
    """
    for name in parts(text, command):
        begin, end = marks(name, command)
        if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
            raise TableError(f"the part {name!r} should stand once between `{begin}` and `{end}`")
        before, _, rest = text.partition(begin)
        after = rest.partition(end)[2]
        text = f"{before}{begin}\n\n{write(name)}\n\n{end}{after}"
    return text
