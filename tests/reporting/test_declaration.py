"""What tables.yaml and the papers' numbers say."""

import pytest
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
        if name.startswith("table") and name != "table6_overhead"  # benchmarks/ measure Table 6
    }
    assert shown == printed


def test_the_published_numbers_of_the_images_agree_between_tables():
    printed = yaml.safe_load((PUBLISHED / "sharmix.yaml").read_text("utf-8"))
    final, dynamics, trade_off = (
        printed[name] for name in ("table2_cifar100_epoch50", "table4_cifar100_dynamics", "table5_cifar100_tradeoff")
    )
    for row, numbers in trade_off.items():
        again = final["sharmix_fixed_1.25_1.50" if row == "sharmix_fixed" else row]
        at_50 = {metric: dynamics[row][metric][50] for metric in again}
        assert {metric: numbers[metric] for metric in again} == again == at_50
        points = 100 * (numbers["accuracy"] - trade_off["softmax"]["accuracy"])
        assert numbers.get("difference", 0.0) == pytest.approx(points)
