"""A part of a table's page, on the page of an experiment."""

import re
from pathlib import Path

from reporting.declaration import load_declaration
from reporting.yaml_files import TableError


def quote_table(root: Path, to_root: str, name: str, *words: str) -> str:
    """A table of the page results/tables/NAME.md below a link to the page: the one below a heading, or the only one."""
    tables = load_declaration(root / "conf" / "reporting").tables
    if name not in tables:
        raise TableError(f"there is no table {name!r} in tables.yaml; it has {', '.join(tables)}")
    table = tables[name]
    page = (root / "results" / "tables" / f"{name}.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^(?:## (.+)\n\n)?((?:\|.*\n)+)", page, re.MULTILINE))
    wanted = " ".join(words).lower()
    exact = [heading for heading in sections if heading.lower() == wanted]
    meant = exact or [heading for heading in sections if heading.lower().startswith(wanted)]
    if len(meant) != 1:
        raise TableError(f"results/tables/{name}.md: which heading is {wanted!r}? It has {', '.join(sections)}")
    source = f"[{table.number or table.title}]({to_root}results/tables/{name}.md)"
    return f"{meant[0]}{', from' if meant[0] else 'From'} {source}:\n\n{sections[meant[0]].rstrip()}"
