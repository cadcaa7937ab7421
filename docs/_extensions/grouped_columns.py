"""Two header rows for tables of theirs beside ours: what both columns measure stands once, above them."""

from collections.abc import Iterator
from itertools import pairwise

from docutils import nodes
from sphinx.application import Sphinx

THEIRS = ", theirs"  # ends the title of a column, if the next one is "ours", or "ours" with the level of its interval


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("doctree-read", _group_columns)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _group_columns(app: Sphinx, doctree: nodes.document) -> None:
    for head in doctree.findall(nodes.thead):
        entries = list(head[0])
        if pairs := [(theirs, ours) for theirs, ours in pairwise(entries) if _belong_together(theirs, ours)]:
            head += nodes.row("", *_lower(pairs))
            for entry in head[0]:
                entry.setdefault("morerows", 1)


def _belong_together(theirs: nodes.entry, ours: nodes.entry) -> bool:
    return theirs.astext().endswith(THEIRS) and ours.astext().split(" [")[0] == "ours"


def _lower(pairs: list[tuple[nodes.entry, nodes.entry]]) -> Iterator[nodes.entry]:
    """The entries of the second row, while those of the first row become one for each pair."""
    for theirs, ours in pairs:
        title = nodes.paragraph("", theirs.astext().removesuffix(THEIRS))
        theirs.replace_self(nodes.entry("", title, morecols=1, morerows=0, classes=["group"]))
        theirs.children = [nodes.paragraph("", "theirs")]
        ours.parent.remove(ours)
        yield from (theirs, ours)
