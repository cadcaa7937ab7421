"""Tables and verdicts, rebuilt from records."""

import math
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import yaml

from reporting.declaration import TableError
from reporting.records import RecordError
from reporting.statistics import Bootstrap, Estimate, estimate, paired_difference
from reporting.tables import main, rebuild
from reporting.verdicts import Verdict, decide
from tests.reporting.synthetic_records import keep_records, make_record

RESULTS = Path(__file__).parents[2] / "results"
BOOTSTRAP = Bootstrap(confidence=0.95, resamples=999, seed=0)
SEEDS = (1, 2, 3, 4, 5)
WOBBLE = dict(zip(SEEDS, (-0.004, -0.002, 0.0, 0.002, 0.004), strict=True))

DECLARATION = """
published: paper
published_decimals: 3
bootstrap: {confidence: 0.95, resamples: 999, seed: 0}
tables:
  small:
    title: A small table
    experiment: airline
    seeds: [1, 2, 3, 4, 5]
    repeat: make small_table
    baseline: {name: softmax}
    columns:
      - {split: test, metrics: &metrics {accuracy: accuracy, sparsity: sparsity}, epochs: [], printed: true}
      - {split: train, metrics: *metrics, epochs: [], printed: false}
    compared: accuracy
    published: table_of_paper
    rows:
      learned: {select: {name: sharmix_learned, q: 1.25, r: 1.5}, published: sharmix}
      softmax: {select: {name: softmax}, published: softmax}
      extra: {select: {name: entmax, alpha: 1.5}, published: null}
    claims:
      - {text: SharMiX wins, metric: accuracy, rows: [learned], against: [softmax]}
      - {text: SharMiX is dense, metric: sparsity, rows: [learned, softmax], against: []}
      - {text: SharMiX is accurate, metric: accuracy, rows: [learned], against: []}
figures: {published: figure, panels: []}
"""
PUBLISHED = """
table_of_paper:
  sharmix: {accuracy: [0.910, 0.006], sparsity: 0.000}
  softmax: {accuracy: [0.893, 0.007], sparsity: 0.000}
"""


def small_records():
    """Softmax wobbles around 0.800; SharMiX is half a point above it, seed by seed."""
    for seed in SEEDS:
        base = 0.8 + WOBBLE[seed]
        yield make_record("softmax", seed, test={"accuracy": base}, train={"accuracy": 0.893})
        yield make_record(
            "sharmix_learned",
            seed,
            test={"accuracy": base + 0.005, "sparsity": 0.2},
            train={"accuracy": 0.910 + WOBBLE[seed], "sparsity": 0.21},
            q=1.25,
            r=1.5,
        )
        yield make_record("entmax", seed, test={"accuracy": base}, alpha=1.5)


@pytest.fixture
def results(tmp_path):
    """A results folder with a small declaration and complete records."""
    (tmp_path / "published").mkdir()
    (tmp_path / "tables.yaml").write_text(DECLARATION, "utf-8")
    (tmp_path / "published" / "paper.yaml").write_text(PUBLISHED, "utf-8")
    keep_records(tmp_path, list(small_records()))
    return tmp_path


def change(records, **changes):
    """Update `code` or `data` of the first record that is not of the baseline."""
    records[1].update({key: records[1][key] | value for key, value in changes.items()})
    return records


def line(frame, **values):
    for key, value in values.items():
        frame = frame[frame[key] == value]
    assert len(frame) == 1
    return frame.iloc[0]


# The statistics


def test_mean_and_deviation_match_a_hand_computation():
    ours = estimate(pd.Series([1.0, 2.0, 4.0]), BOOTSTRAP)
    assert ours.mean == pytest.approx(7 / 3)
    assert ours.std == pytest.approx(math.sqrt((16 + 1 + 25) / 9 / 2))
    assert ours.seeds == 3
    assert 1.0 <= ours.low < ours.mean < ours.high <= 4.0


def test_the_interval_is_repeatable_and_widens_with_confidence():
    values = pd.Series([0.1, 0.5, 0.2, 0.9, 0.4])
    assert estimate(values, BOOTSTRAP) == estimate(values, BOOTSTRAP)
    narrow = estimate(values, Bootstrap(confidence=0.5, resamples=999, seed=0))
    wide = estimate(values, BOOTSTRAP)
    assert wide.low < narrow.low < narrow.high < wide.high


def test_constant_values_have_an_interval_of_one_point():
    ours = estimate(pd.Series([0.25] * 5), BOOTSTRAP)
    assert (ours.mean, ours.std, ours.low, ours.high) == (0.25, 0.0, 0.25, 0.25)


def test_too_few_seeds_give_nan():
    one = estimate(pd.Series([0.5]), BOOTSTRAP)
    assert one.mean == 0.5
    assert all(map(math.isnan, (one.std, one.low, one.high)))
    assert math.isnan(estimate(pd.Series([], dtype=float), BOOTSTRAP).mean)


def test_differences_are_paired_by_seed():
    values = pd.Series({63: 0.9, 21: 0.7, 1: 0.1})
    reference = pd.Series({21: 0.6, 42: 0.0, 63: 0.5})
    assert paired_difference(values, reference).to_dict() == pytest.approx({21: 0.1, 63: 0.4})


# The rule


@pytest.mark.parametrize(
    ("published", "low", "high", "difference", "verdict"),
    [
        (0.50, 0.40, 0.60, False, Verdict.REPRODUCES),
        (0.6004, 0.40, 0.60, False, Verdict.REPRODUCES),  # within the paper's rounding
        (0.3996, 0.40, 0.60, False, Verdict.REPRODUCES),
        (0.61, 0.40, 0.60, False, Verdict.FAILS),
        (0.61, 0.40, 0.60, True, Verdict.DIRECTION),
        (-0.61, -0.60, -0.40, True, Verdict.DIRECTION),
        (-0.61, 0.40, 0.60, True, Verdict.FAILS),
        (0.61, -0.10, 0.60, True, Verdict.FAILS),
        (0.61, 0.0, 0.60, True, Verdict.FAILS),  # 0 is not excluded
        (0.61, math.nan, math.nan, True, Verdict.UNDECIDED),
    ],
)
def test_the_rule(published, low, high, difference, verdict):
    ours = Estimate((low + high) / 2, 0.1, 5, low, high)
    assert decide(published, ours, rounding=0.0005, difference=difference) is verdict


# The tables


def test_the_csv_holds_published_and_measured_numbers(results):
    rebuild(results)
    table = pd.read_csv(results / "tables" / "small.csv")
    learned = "SharMiX learned (1.25, 1.50)"

    paper = line(table, row=learned, source="published", metric="accuracy")
    assert (paper["mean"], paper["std"]) == (0.910, 0.006)
    assert math.isnan(line(table, row=learned, source="published", metric="sparsity")["std"])

    ours = {"row": learned, "source": "ours", "kind": "level", "metric": "accuracy"}
    test, train = (line(table, split=split, **ours) for split in ("test", "train"))
    assert test["mean"] == pytest.approx(0.805, abs=1e-12)
    assert test["std"] == pytest.approx(0.002 * math.sqrt(2.5), abs=1e-12)
    assert test["seeds"] == 5
    assert train["mean"] == pytest.approx(0.910, abs=1e-12)

    difference = line(table, row=learned, kind="difference to softmax")
    # The wobble that both share cancels, so the interval is a point.
    assert difference[["mean", "low", "high"]].tolist() == pytest.approx([0.5] * 3, abs=1e-9)
    assert difference["unit"] == "percentage points"
    assert "published" not in table[table["row"] == "entmax (α = 1.5)"]["source"].tolist()


def test_the_markdown_holds_the_table_and_how_to_repeat_it(results):
    rebuild(results)
    text = (results / "tables" / "small.md").read_text("utf-8")
    rows = {cells[1].strip(): cells for cells in (row.split("|") for row in text.splitlines()) if cells[1:]}
    header = [cell.strip() for cell in rows["row"]]
    learned = dict(zip(header, map(str.strip, rows["SharMiX learned (1.25, 1.50)"]), strict=True))
    assert learned["published accuracy"] == "0.910 ± 0.006"
    assert learned["published sparsity"] == "0.000"
    assert learned["ours, test accuracy"] == "0.805 ± 0.003"
    assert learned["ours, train sparsity"] == "0.210 ± 0.000"
    assert learned["seeds"] == "5"
    assert learned["ours, test: accuracy − softmax points [95%]"] == "+0.50 [+0.50, +0.50]"
    assert [cell.strip() for cell in rows["entmax (α = 1.5)"]][2:4] == ["–", "–"]
    for note in ("digest d1ge57, commit c0ffee, clean", "cores 2", "1, 2, 3", "make small_table"):
        assert note in text


def test_the_latex_is_plain_ascii_and_balanced(results):
    rebuild(results)
    text = (results / "tables" / "small.tex").read_text("utf-8")
    body = "".join(row for row in text.splitlines(keepends=True) if not row.startswith("%"))
    assert body.isascii()
    assert r"0.805 $\pm$ 0.003" in body
    assert r"entmax ($\alpha$ = 1.5)" in body
    assert body.count(r"\begin{") == body.count(r"\end{")
    assert "% Repeat: make small_table" in text


def test_verdicts_follow_the_rule_and_show_their_numbers(results):
    rebuild(results)
    verdicts = pd.read_csv(results / "tables" / "verdicts.csv").set_index(["claim", "row"])
    learned = "SharMiX learned (1.25, 1.50)"

    wins = verdicts.loc[("SharMiX wins", learned)]
    assert wins["published"] == pytest.approx(1.7)
    assert wins["test_mean"] == pytest.approx(0.5)
    assert wins["test_verdict"] == "direction only"
    assert wins["train_verdict"] == "reproduces"
    assert verdicts.loc[("SharMiX is dense", learned), "test_verdict"] == "does not reproduce"
    assert verdicts.loc[("SharMiX is dense", "softmax"), "test_verdict"] == "reproduces"
    assert verdicts.loc[("SharMiX is dense", "softmax"), "nearer_split"] == "neither"
    accurate = verdicts.loc[("SharMiX is accurate", learned)]
    assert accurate["test_verdict"] == "does not reproduce"
    assert accurate["train_verdict"] == "reproduces"
    assert accurate["nearer_split"] == "train"

    text = (results / "tables" / "verdicts.md").read_text("utf-8")
    assert "+1.70 points" in text
    assert "+0.50 [+0.50, +0.50]" in text


def test_rebuilding_gives_the_same_bytes(results):
    first = {path: path.read_bytes() for path in rebuild(results)}
    assert {path: path.read_bytes() for path in rebuild(results)} == first


# Runs that are shorter than the paper's

SHORT = """
published: paper
published_decimals: 3
bootstrap: {confidence: 0.95, resamples: 999, seed: 0}
tables:
  final:
    title: At the end
    experiment: images
    seeds: [1, 2]
    epoch: 6
    where: {data: {augmentation: none}}
    repeat: make images
    baseline: {name: softmax}
    columns: [{split: test, metrics: &metrics {accuracy: accuracy}, epochs: [], printed: true}]
    compared: accuracy
    published: final_of_paper
    rows: &rows
      softmax: {select: {name: softmax}, published: softmax}
      sparsemax: {select: {name: sparsemax}, published: sparsemax}
    claims: &claims
      - {text: Softmax is accurate, metric: accuracy, rows: [softmax], against: []}
      - {text: Sparsemax is worse, metric: accuracy, rows: [sparsemax], against: [softmax]}
  dynamics:
    title: By epoch
    experiment: images
    seeds: [1, 2]
    where: {data: {augmentation: none}}
    repeat: make images
    baseline: {name: softmax}
    columns:
      - {split: test, metrics: *metrics, epochs: [2, 6], printed: true}
      - {split: train, metrics: *metrics, epochs: [6], printed: true}
    compared: null
    published: dynamics_of_paper
    rows:
      softmax: {select: {name: softmax}, published: softmax}
    claims:
      - {text: Softmax starts well, metric: accuracy, rows: [softmax], against: [], epoch: 2}
      - {text: Softmax ends well, metric: accuracy, rows: [softmax], against: [], epoch: 6}
  tail:
    title: By shots
    experiment: images_lt
    seeds: [1]
    repeat: make images_lt
    baseline: {name: softmax}
    columns: [{split: test, metrics: {accuracy: All, few_accuracy: Few}, epochs: [], printed: false}]
    compared: accuracy
    published: null
    rows: {softmax: {select: {name: softmax}, published: null}}
    claims: []
figures: {published: figure, panels: []}
"""
ORDERS = """
  orders:
    title: Learned orders
    experiment: learning
    seeds: [1]
    repeat: make learning
    baseline: {name: sharmix_learned}
    columns: [{split: orders, metrics: {q: q, r: r}, epochs: [1, 3, 9], printed: false}]
    compared: null
    published: null
    rows: {learned: {select: {name: sharmix_learned}, published: null}}
    claims: []
"""
SHORT_PUBLISHED = """
final_of_paper:
  softmax: {accuracy: 0.500}
  sparsemax: {accuracy: 0.430, difference: -7.0}
dynamics_of_paper:
  softmax: {accuracy: {2: 0.300, 6: 0.500}, train_accuracy: {6: 0.9}}
"""


def image_record(name, seed, epochs, accuracy, augmentation="none"):
    """Its accuracy is `accuracy` at the last of `epochs`, and less before."""
    settings = {"augmentation": augmentation}
    return make_record(name, seed, "images", {"accuracy": accuracy}, {"accuracy": 0.9}, epochs=epochs, data=settings)


def image_records(epochs):
    """Softmax reaches `epochs`, sparsemax four; the paper's table is of epoch six."""
    for seed in (1, 2):
        yield image_record("softmax", seed, epochs, 0.5 + 0.002 * seed)
        yield image_record("softmax", seed, epochs, 0.6, augmentation="standard")
        yield image_record("sparsemax", seed, 4, 0.45)


@pytest.fixture
def short_results(tmp_path):
    """A results folder of runs that end after four of six epochs, and a long tail."""
    (tmp_path / "published").mkdir()
    (tmp_path / "tables.yaml").write_text(SHORT, "utf-8")
    (tmp_path / "published" / "paper.yaml").write_text(SHORT_PUBLISHED, "utf-8")
    keep_records(tmp_path, list(image_records(epochs=4)), "images")
    facts = {
        "shot_rule": "many > 100, few < 20 training examples",
        "many_classes": 3,
        "few_classes": 7,
        "largest_class": 500,
        "smallest_class": 5,
    }
    tail = make_record("softmax", 1, "images_lt", {"accuracy": 0.4, "few_accuracy": 0.1}, facts=facts)
    keep_records(tmp_path, [tail], "images_lt")
    return tmp_path


def cells_of(results, name):
    """Cells of a Markdown table by row and column."""
    lines = [row.split("|")[1:-1] for row in (results / f"tables/{name}.md").read_text("utf-8").splitlines()]
    header, _, *rows = [[cell.strip() for cell in row] for row in lines if row]
    return {row[0]: dict(zip(header, row, strict=True)) for row in rows}


def test_short_runs_are_shown_with_their_own_epoch_beside_the_papers(short_results):
    rebuild(short_results)
    table = pd.read_csv(short_results / "tables" / "final.csv")
    published = line(table, row="softmax", source="published", kind="level")
    assert (published["epoch"], published["mean"]) == (6, 0.5)
    ours = line(table, row="softmax", source="ours", kind="level")
    assert (ours["epoch"], ours["mean"]) == (4, pytest.approx(0.503))

    row = cells_of(short_results, "final")["sparsemax"]
    assert row["published, epoch 6 accuracy"] == "0.430"
    assert row["published, epoch 6 accuracy − softmax points"] == "−7.0"
    assert row["ours, test accuracy"] == "0.450 ± 0.000"
    assert row["epoch of ours"] == "4"
    assert row["ours, test: accuracy − softmax points [95%]"] == "−5.30 [−5.40, −5.20]"
    text = (short_results / "tables" / "final.md").read_text("utf-8")
    assert "numbers are of epoch 6; ours are of epoch 4, the last that all runs have reached" in text


def test_rows_are_compared_at_one_epoch_however_long_their_runs_are(short_results):
    keep_records(short_results, list(image_records(epochs=5)), "images")
    rebuild(short_results)
    table = pd.read_csv(short_results / "tables" / "final.csv")
    ours = table[(table["source"] == "ours") & (table["kind"] == "level")].set_index("row")
    assert ours["epoch"].tolist() == [4, 4]
    # 0.1 / 4 − 0.1 / 5 below the last epoch's.
    assert ours.loc["softmax", "mean"] == pytest.approx(0.503 - 0.005)


def test_an_epoch_that_no_run_has_reached_is_never_filled_from_another(short_results):
    rebuild(short_results)
    row = cells_of(short_results, "dynamics")["softmax"]
    assert row["published accuracy, epoch 6"] == "0.500"
    assert row["published, train accuracy, epoch 6"] == "0.900"
    assert row["ours, test accuracy, epoch 2"] == "0.478 ± 0.001"
    assert row["ours, test accuracy, epoch 6"] == row["ours, train accuracy, epoch 6"] == "not reached"
    assert "ours, test: accuracy − softmax" not in row
    table = pd.read_csv(short_results / "tables" / "dynamics.csv")
    ours = table[(table["row"] == "softmax") & (table["source"] == "ours") & (table["epoch"] == 6)]
    assert ours["mean"].isna().all()
    assert ours["seeds"].tolist() == [0, 0]


def test_verdicts_wait_for_the_papers_epoch(short_results):
    def decided():
        rebuild(short_results)
        return pd.read_csv(short_results / "tables" / "verdicts.csv").set_index("claim")["test_verdict"].to_dict()

    assert decided() == {
        "Softmax is accurate": "not reached",
        "Sparsemax is worse": "not reached",
        "Softmax starts well": "does not reproduce",
        "Softmax ends well": "not reached",
    }
    assert "**not reached**" in (short_results / "tables" / "verdicts.md").read_text("utf-8")

    keep_records(short_results, list(image_records(epochs=6)), "images")
    verdicts = decided()
    assert verdicts["Softmax is accurate"] == verdicts["Softmax ends well"] == "does not reproduce"
    assert verdicts["Sparsemax is worse"] == "not reached"  # its own runs have four epochs still


def test_one_seed_that_has_reached_the_epoch_stays_undecided(short_results):
    records = [image_record("softmax", 1, 6, 0.5), image_record("sparsemax", 1, 6, 0.43)]
    keep_records(short_results, records, "images")
    rebuild(short_results, allow_missing_seeds=True)
    verdicts = pd.read_csv(short_results / "tables" / "verdicts.csv")
    assert set(verdicts["test_verdict"]) == {"undecided"}
    final = cells_of(short_results, "final")["softmax"]
    assert (final["ours, test accuracy"], final["epoch of ours"]) == ("0.500", "6")


def test_settings_beside_the_activation_pick_runs_too(short_results):
    rebuild(short_results)
    declaration = SHORT.replace("where: {data: {augmentation: none}}", "where: {}", 1)
    (short_results / "tables.yaml").write_text(declaration, "utf-8")
    with pytest.raises(TableError, match="several configurations"):
        rebuild(short_results)


def test_a_long_tail_has_its_groups_and_says_how_they_were_made(short_results):
    rebuild(short_results)
    row = cells_of(short_results, "tail")["softmax"]
    assert (row["ours, test All"], row["ours, test Few"]) == ("0.400", "0.100")
    assert not any(column.startswith("published") for column in row)
    text = (short_results / "tables" / "tail.md").read_text("utf-8")
    assert "many > 100, few < 20 training examples; 3 many, 7 few" in text
    assert "largest class has 500 training examples, the smallest 5" in text
    assert "Seed 1 alone" in text


def test_learned_orders_are_shown_by_epoch(short_results):
    (short_results / "tables.yaml").write_text(SHORT.replace("figures:", f"{ORDERS}figures:"), "utf-8")
    keep_records(short_results, [make_record("sharmix_learned", 1, "learning", q=1.25, r=1.5)], "learning")
    rebuild(short_results)
    (cells,) = cells_of(short_results, "orders").values()
    shown = {column: cell for column, cell in cells.items() if column.startswith("ours")}
    assert shown == {
        "ours q, epoch 1": "1.260",
        "ours q, epoch 3": "1.280",
        "ours q, epoch 9": "not reached",
        "ours r, epoch 1": "1.510",
        "ours r, epoch 3": "1.530",
        "ours r, epoch 9": "not reached",
    }


def test_a_metric_that_was_not_measured_is_named_with_its_run(short_results):
    keep_records(short_results, [make_record("softmax", 1, "images_lt")], "images_lt")
    with pytest.raises(RecordError, match=r"images_lt: the run .*seed=1 did not measure 'few_accuracy' on test"):
        rebuild(short_results)


def test_tables_without_records_are_left_out_and_said_so(short_results, capsys):
    main(["--results", str(short_results)])
    assert "left out" not in capsys.readouterr().out
    kept = (short_results / "tables" / "tail.md").read_bytes()
    (short_results / "records" / "images_lt.jsonl").unlink()
    main(["--results", str(short_results)])
    *files, notice = capsys.readouterr().out.splitlines()
    assert not any("tail" in file for file in files)
    assert notice.startswith("left out: tail: ")
    assert "python -m reporting.records --experiment images_lt" in notice
    assert "still holds tail, with no records behind" in notice
    assert (short_results / "tables" / "tail.md").read_bytes() == kept


def test_experiments_may_be_of_different_code_but_runs_of_one_may_not(short_results):
    tail = make_record("softmax", 1, "images_lt", {"few_accuracy": 0.1})
    tail["code"]["digest"] = "0ther"
    keep_records(short_results, [tail], "images_lt")
    rebuild(short_results)
    records = list(image_records(epochs=4))
    records[2]["code"]["digest"] = "0ther"
    keep_records(short_results, records, "images")
    with pytest.raises(TableError, match="different code"):
        rebuild(short_results)


# What is refused


def test_missing_seeds_are_refused_by_name_unless_allowed(results):
    absent = [("sharmix_learned", 2), ("sharmix_learned", 4), ("softmax", 5)]
    present = [
        record for record in small_records() if (record["config"]["activation"]["name"], record["seed"]) not in absent
    ]
    keep_records(results, present)
    with pytest.raises(TableError) as error:
        rebuild(results)
    assert "small: SharMiX learned (1.25, 1.50), seed 2, 4\n" in str(error.value)
    assert "small: softmax, seed 5\n" in str(error.value)
    assert "entmax" not in str(error.value)
    assert not (results / "tables").exists()

    rebuild(results, allow_missing_seeds=True)
    table = pd.read_csv(results / "tables" / "small.csv")
    difference = line(table, row="SharMiX learned (1.25, 1.50)", kind="difference to softmax")
    assert difference["seeds"] == 2  # 1 and 3 are the seeds that both have
    assert "Missing runs: softmax, seed 5; SharMiX" in (results / "tables/small.md").read_text("utf-8")


def test_a_row_without_any_run_stays_undecided_when_allowed(results):
    present = [r for r in small_records() if r["config"]["activation"]["name"] != "sharmix_learned"]
    keep_records(results, present)
    rebuild(results, allow_missing_seeds=True)
    verdicts = pd.read_csv(results / "tables" / "verdicts.csv")
    learned = verdicts[verdicts["row"] == "SharMiX learned (1.25, 1.50)"]
    assert set(learned["test_verdict"]) == {"undecided"}


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            {"digest": "0ther"},
            "digest 0ther, commit c0ffee, clean: SharMiX learned (1.25, 1.50) seed 1\n",
        ),
        ({"dirty": True}, "commit c0ffee, dirty: SharMiX learned (1.25, 1.50) seed 1\n"),
        ({"dirty": None, "commit": None}, "commit None, state unknown: SharMiX"),
    ],
)
def test_mixed_or_uncommitted_code_is_refused_by_run_unless_allowed(results, code, message):
    keep_records(results, change(list(small_records()), code=code))
    with pytest.raises(TableError) as error:
        rebuild(results)
    assert message in str(error.value)
    rebuild(results, allow_mixed_code=True)
    assert message.split(":")[0] in (results / "tables" / "small.md").read_text("utf-8")


def test_another_commit_of_the_same_code_is_accepted(results):
    keep_records(results, change(list(small_records()), code={"commit": "beef"}))
    rebuild(results)
    text = (results / "tables" / "small.md").read_text("utf-8")
    assert "commit beef" in text
    assert "commit c0ffee" in text


def test_different_splits_are_refused(results):
    keep_records(results, change(list(small_records()), data={"split_hash": "0ther"}))
    with pytest.raises(TableError, match="different splits, split_hash 0ther, 5p117"):
        rebuild(results)


def test_a_row_of_several_configurations_is_refused(results):
    other = make_record("sharmix_learned", 1, q=1.25, r=1.5, objective="brier")
    keep_records(results, [*small_records(), other])
    with pytest.raises(TableError, match=r"several configurations, run_id .*brier"):
        rebuild(results)


def test_other_seeds_and_activations_do_not_disturb(results):
    rebuild(results)
    before = (results / "tables" / "small.csv").read_bytes()
    others = [make_record("softmax", 77), make_record("sparsemax", 1)]
    keep_records(results, [*small_records(), *others])
    rebuild(results)
    assert (results / "tables" / "small.csv").read_bytes() == before


def test_missing_records_name_the_command_that_makes_them(results):
    (results / "records" / "airline.jsonl").unlink()
    with pytest.raises(RecordError, match=r"airline\.jsonl: .*python -m reporting\.records"):
        rebuild(results)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("title: A small", "titel: A small", "titel"),
        ("published_decimals: 3", "published_decimals: three", "three"),
        ("rows: [learned], against: [softmax]", "rows: [learnt], against: []", "no row 'learnt'"),
        ("metric: sparsity, rows", "metric: density, rows", "no metric 'density'"),
        ("compared: accuracy", "compared: brier", "compared: there is no metric 'brier'"),
        (
            "split: train",
            "split: validation",
            "there is no split 'validation'; there are ['dev', 'orders', 'test', 'train']",
        ),
        ("rows: [learned], against: [softmax]}", "rows: [learned], against: [], epoch: 9}", "no epoch 9"),
        ("epochs: [], printed: true", "epochs: [3], printed: true", "claim 'SharMiX wins' of small: there is no epoch"),
        ("panels: []", "panels: [{title: A, runs: large, paths: small, regime: null}]", "no table 'large'"),
        ("published: sharmix}", "published: sharmax}", "no row 'sharmax'"),
        ("published: sharmix}", "published: null}", "'learned' has no published numbers"),
        ("published: table_of_paper", "published: table_9", "no table 'table_9'"),
        ("published: paper\n", "published: book\n", "book.yaml: no such file"),
        ("    repeat: make small_table\n", "", "repeat"),
        ("{name: entmax, alpha: 1.5}", "{name: softmax}", "several rows for ['softmax']"),
    ],
)
def test_a_wrong_declaration_is_one_clear_error(results, old, new, message):
    assert old in DECLARATION
    (results / "tables.yaml").write_text(DECLARATION.replace(old, new, 1), "utf-8")
    with pytest.raises(TableError) as error:
        rebuild(results)
    assert message in str(error.value)


# The project's own declaration


def project_records():
    activations = [
        ("softmax", {}),
        ("sparsemax", {}),
        *((name, {"alpha": 1.5}) for name in ("entmax", "entmax_learned", "alpha_relu")),
        *(
            (name, {"q": q, "r": r})
            for name in ("sharmix_learned", "sharmix_fixed")
            for q in (1.25, 1.5, 1.75)
            for r in (1.25, 1.5, 1.75)
        ),
    ]
    for name, parameters in activations:
        for seed in (21, 42, 63, 1812, 9998):
            yield make_record(name, seed, **parameters)


def test_the_projects_tables_are_complete_and_built_without_torch(tmp_path):
    shutil.copy(RESULTS / "tables.yaml", tmp_path)
    shutil.copytree(RESULTS / "published", tmp_path / "published")
    keep_records(tmp_path, list(project_records()))
    code = "import sys; from reporting.tables import main; main(sys.argv[1:]); assert 'torch' not in sys.modules"
    command = [sys.executable, "-W", "error", "-c", code, "--results", str(tmp_path)]
    done = subprocess.run(command, cwd=RESULTS.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    files, notices = done.stdout.splitlines()[:8], done.stdout.splitlines()[8:]
    assert all(Path(file).is_file() for file in files)
    assert [notice.split(":")[1].strip() for notice in notices] == [
        "table2, table4, table5, cifar100_orders",
        "cifar100_augmented",
        "cifar100_lt, cifar100_lt_orders",
        "translation_bleu, translation_empty, translation_sparsity, attention",
        "thresholds",
        "copying",
    ]

    main_table, grid = (pd.read_csv(tmp_path / f"tables/{name}.csv") for name in ("table1", "table3"))
    assert main_table["row"].nunique() == 9
    assert grid["row"].nunique() == 18
    assert grid[grid["source"] == "published"]["row"].nunique() == 9
    verdicts = pd.read_csv(tmp_path / "tables" / "verdicts.csv")
    assert "undecided" not in set(verdicts["test_verdict"])
    dense = line(verdicts, metric="sparsity", row="softmax")
    assert dense["test_verdict"] == "reproduces"


def test_every_published_row_of_the_tables_is_shown():
    declared = yaml.safe_load((RESULTS / "tables.yaml").read_text("utf-8"))["tables"]
    published = {name: table for name, table in declared.items() if table["published"]}
    of_sharmix = {"table1", "table2", "table3", "table4", "table5", "cifar100_augmented"}
    assert set(published) == of_sharmix | {"translation_bleu", "translation_empty"}
    del published["cifar100_augmented"]  # of one row of Table 4, once more
    for table in published.values():
        paper = RESULTS / "published" / f"{table.get('paper', 'sharmix')}.yaml"
        printed = yaml.safe_load(paper.read_text("utf-8"))
        shown = {row["published"] for row in table["rows"].values()} - {None}
        assert shown == set(printed[table["published"]])


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


def test_the_command_reports_an_error_in_one_message(results, capsys):
    main(["--results", str(results)])
    assert str(results / "tables" / "small.md") in capsys.readouterr().out
    keep_records(results, list(small_records())[1:])
    with pytest.raises(SystemExit, match="error: these runs have no record"):
        main(["--results", str(results)])
    main(["--results", str(results), "--allow-missing-seeds", "--allow-mixed-code"])
