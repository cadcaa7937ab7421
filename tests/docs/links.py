"""What a page of the documentation links to in the repository, and the anchors of its headings."""

import re
from pathlib import Path

from experiments.identity import ROOT

DOCS = ROOT / "docs"
LINK = re.compile(r"\]\(([^)\s]+)\)")


def linked_files(page: Path) -> list[Path]:
    """What a page links to in the repository."""
    targets = [link.partition("#")[0] for link in LINK.findall(page.read_text("utf-8")) if "://" not in link]
    return [page.parent / target for target in targets if target]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and MyST make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
