"""What tables.yaml and the papers' numbers say."""

import pandas as pd
import yaml

from reporting.look.palette import order
from reporting.records.declaration import SETTINGS, load_declaration
from tests.reporting.synthetic_results import RESULTS

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
        # benchmarks/ measure Table 6; Table 5 repeats Table 2.
        if name not in ("protocol", "table5_cifar100_tradeoff", "table6_overhead")
    }
    assert shown == printed


def test_table_5_of_the_paper_repeats_table_2_and_its_differences_are_shown_there():
    printed = yaml.safe_load((PUBLISHED / "sharmix.yaml").read_text("utf-8"))
    final = {name.removesuffix("_1.25_1.50"): numbers for name, numbers in printed["table2_cifar100_epoch50"].items()}
    again = printed["table5_cifar100_tradeoff"]
    differences = {name: numbers.pop("difference") for name, numbers in again.items() if "difference" in numbers}
    assert again == final
    table = pd.read_csv(RESULTS / "tables" / "table2.csv")
    shown = table[(table["source"] == "published") & (table["kind"] == "difference to softmax")]
    assert sorted(shown["mean"]) == sorted(differences.values())


def test_rows_have_the_order_of_the_palette():
    tables = load_declaration().tables
    declared = {name: list(table.rows) for name, table in tables.items()}
    # Rows of one activation, such as thresholds or kinds of attention, keep their own order.
    assert declared == {
        name: sorted(table.rows, key=lambda row: order(table.rows[row].select)) for name, table in tables.items()
    }
    claims = [(declared[name], claim.rows) for name, table in tables.items() for claim in table.claims]
    assert [rows for _, rows in claims] == [[row for row in table if row in rows] for table, rows in claims]
