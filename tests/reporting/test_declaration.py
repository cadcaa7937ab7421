"""What tables.yaml and the papers' numbers say."""

import yaml

from reporting.declaration import SETTINGS, load_declaration

PUBLISHED = SETTINGS / "published"


def test_every_published_row_of_the_tables_is_shown():
    declaration = load_declaration()
    shown = {
        (table.paper or declaration.published, table.published, row.published)
        for table in declaration.tables.values()
        for row in table.rows.values()
        if table.published and row.published
    }
    printed = {
        (paper.stem, name, row)
        for paper in PUBLISHED.iterdir()
        for name, rows in yaml.safe_load(paper.read_text("utf-8")).items()
        for row in rows
        if name != "protocol" and name != "table6_overhead"  # benchmarks/ measure Table 6
    }
    assert shown == printed
