"""What tables.yaml may say."""

import pytest
import yaml

from reporting.declaration import Panel, TableError, load_declaration
from tests.reporting.synthetic_results import RESULTS, SMALL, rebuild


def test_a_wrong_declaration_is_one_clear_error(small):
    cases = [
        ("title: A small", "titel: A small", "the key tables.small.titel is not known"),
        ("published_decimals: 3", "published_decimals: three", "published_decimals='three': it should be"),
        ("rows: [learned], against: [softmax]", "rows: [learnt], against: []", "no row 'learnt'"),
        ("metric: sparsity, rows", "metric: density, rows", "no metric 'density'"),
        ("compared: accuracy", "compared: brier", "compared: there is no metric 'brier'"),
        ("baseline: {name: softmax}", "", "compares 'accuracy' with no baseline"),
        (
            "split: train",
            "split: validation",
            "there is no split 'validation'; there are ['dev', 'orders', 'test', 'train']",
        ),
        ("rows: [learned], against: [softmax]}", "rows: [learned], against: [], epoch: 9}", "no epoch 9"),
        ("epochs: [], printed: true", "epochs: [3], printed: true", "claim 'SharMiX wins' of small: there is no epoch"),
        (
            "epochs: [], printed",
            "unit: points, epochs: [], printed",
            "compares ['accuracy', 'sparsity'] in the unit 'points'",
        ),
        ("panels: []", "panels: [{title: A, runs: large}]", "no table 'large'"),
        ("published: sharmix}", "published: sharmax}", "no row 'sharmax'"),
        ("published: sharmix}", "published: null}", "'learned' has no published numbers"),
        ("published: table_of_paper", "published: table_9", "no table 'table_9'"),
        ("published: paper\n", "published: book\n", "book.yaml: no such file"),
        ("    repeat: make small_table\n", "", "the key tables.small.repeat is missing"),
        ("split: train", "split: test", "several columns for ['test accuracy', 'test sparsity']"),
        ("{name: entmax, alpha: 1.5}", "{name: softmax}", "several rows for ['softmax']"),
        ("alpha: 1.5}}", "alpha: 1.5}, seeds: [9]}", "row 'extra' of small: there is no seed 9"),
        ("alpha: 1.5}}", "alpha: 1.5}, seeds: [2, 2]}", "seeds=[2, 2]: it should have each value once"),
        ("panels: []", "panels: [", "tables.yaml: while parsing"),
    ]
    said = {}
    for old, new, message in cases:
        assert old in SMALL
        (small / "tables.yaml").write_text(SMALL.replace(old, new, 1), "utf-8")
        with pytest.raises(TableError) as error:
            rebuild(small)
        said[message] = str(error.value)
    assert not {message: text for message, text in said.items() if message not in text}
    (small / "tables.yaml").unlink()
    with pytest.raises(TableError, match=r"tables\.yaml: no such file"):
        rebuild(small)


def test_a_panel_draws_the_paths_of_its_own_table_if_no_other_is_given():
    assert Panel(title="A", runs="table2").paths == "table2"
    assert Panel(title="A", runs="table1", paths="table3").paths == "table3"


def test_every_published_row_of_the_tables_is_shown():
    declaration = load_declaration(RESULTS)
    shown = {
        (table.paper or declaration.published, table.published, row.published)
        for table in declaration.tables.values()
        for row in table.rows.values()
        if table.published and row.published
    }
    printed = {
        (paper.stem, name, row)
        for paper in (RESULTS / "published").iterdir()
        for name, rows in yaml.safe_load(paper.read_text("utf-8")).items()
        for row in rows
        if name.startswith("table") and name != "table6_overhead"  # benchmarks/ measure Table 6
    }
    assert shown == printed


def test_the_published_numbers_of_the_images_agree_between_tables():
    printed = yaml.safe_load((RESULTS / "published" / "sharmix.yaml").read_text("utf-8"))
    final, dynamics, trade_off = (
        printed[name] for name in ("table2_cifar100_epoch50", "table4_cifar100_dynamics", "table5_cifar100_tradeoff")
    )
    for row, numbers in trade_off.items():
        again = final["sharmix_fixed_1.25_1.50" if row == "sharmix_fixed" else row]
        at_50 = {metric: dynamics[row][metric][50] for metric in again}
        assert {metric: numbers[metric] for metric in again} == again == at_50
        points = 100 * (numbers["accuracy"] - trade_off["softmax"]["accuracy"])
        assert numbers.get("difference", 0.0) == pytest.approx(points)
