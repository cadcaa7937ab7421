"""What tables.yaml and the papers' numbers say."""

import yaml

from reporting.declaration import SETTINGS, load_declaration
from reporting.palette import order

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


def test_rows_have_the_order_of_the_palette():
    tables = load_declaration().tables
    declared = {name: list(table.rows) for name, table in tables.items()}
    # Rows of one activation, such as thresholds or kinds of attention, keep their own order.
    assert declared == {
        name: sorted(table.rows, key=lambda row: order(table.rows[row].select)) for name, table in tables.items()
    }
    claims = [(declared[name], claim.rows) for name, table in tables.items() for claim in table.claims]
    assert [rows for _, rows in claims] == [[row for row in table if row in rows] for table, rows in claims]
