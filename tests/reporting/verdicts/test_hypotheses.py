"""Under which hypothesis a published number that does not reproduce comes near ours."""

import math

import pytest

from reporting.verdicts import decide_claim, rules
from tests.reporting.synthetic_records import keep_records, make_record
from tests.reporting.synthetic_results import SEEDS, loaded

STUDY = """contender,metric,network,value
SharMiX,accuracy,large,0.900
SharMiX,accuracy,large,0.904
SharMiX,accuracy,small,0.910
softmax,accuracy,large,0.890
SharMiX,sparsity,large,0.150
"""


@pytest.fixture
def decided(small):
    """The line of a claim, where SharMiX has an accuracy and a sparsity of its own on train, and softmax 0.9 there."""
    (small / "studies").mkdir()
    (small / "studies" / "networks.csv").write_text(STUDY)

    def decide(claim, accuracy=0.5, sparsity=0.5):
        on_train = {"accuracy": accuracy, "sparsity": sparsity}
        test = {"accuracy": 0.7, "sparsity": 0.5}
        own = [make_record("sharmix_learned", seed, test=test, train=on_train, q=1.25, r=1.5) for seed in SEEDS]
        others = [make_record("softmax", seed, test={"accuracy": 0.8}, train={"accuracy": 0.9}) for seed in SEEDS]
        keep_records(small, own + others)
        kept = loaded(small, allow_missing_seeds=True)
        (asked,) = (one for one in kept.declaration.tables["small"].claims if one.text == claim)
        line = decide_claim(kept, "small", asked, "learned")
        assert line["verdict"] == "does not reproduce"
        return line["near_when"], line["near_value"], line["near_deviations"]

    return decide


@pytest.mark.parametrize(
    ("claim", "on_train", "expected"),
    [  # the paper: 0.910 ± 0.006 beside 0.893 ± 0.007, and a sparsity of 0 without a deviation
        ("SharMiX is accurate", {"accuracy": 0.5}, ("another network", 0.902, 8 / 6)),
        ("SharMiX is accurate", {"accuracy": 0.913}, ("measured on train", 0.913, 0.5)),
        ("SharMiX wins", {"accuracy": 0.5}, ("another network", 1.2, 0.5 / 0.85**0.5)),
        ("SharMiX wins", {"accuracy": 0.916}, ("measured on train", 1.6, 0.1 / 0.85**0.5)),
        ("SharMiX is dense", {"sparsity": 0.5}, ("another network", 0.15, 1.5)),
        ("SharMiX is dense", {"sparsity": 0.12}, ("measured on train", 0.12, 1.2)),
    ],
)
def test_of_two_hypotheses_the_nearest_is_shown(decided, claim, on_train, expected):
    name, *numbers = decided(claim, **on_train)
    assert name == expected[0]
    assert numbers == pytest.approx(expected[1:])


def test_a_number_that_is_far_under_each_hypothesis_or_has_no_deviation_is_not_found(decided, small):
    file = small / "studies" / "networks.csv"
    file.write_text(STUDY.replace("0.900", "0.890"))  # a mean of 0.897, more than two deviations away
    name, *numbers = decided("SharMiX is accurate")
    assert (name, *map(math.isnan, numbers)) == ("not found", True, True)
    (small / "published" / "paper.yaml").write_text(
        "table_of_paper: {softmax: {accuracy: 0.893, sparsity: 0}, sharmix: {accuracy: 0.91, sparsity: 0}}"
    )
    assert decided("SharMiX is accurate", accuracy=0.911)[0] == "not found"


def test_of_a_difference_in_sparsity_both_are_in_percentage_points(decided, small):
    (small / "studies" / "networks.csv").write_text(f"{STUDY}softmax,sparsity,large,0.0\n")
    declaration = small / "tables.yaml"
    text = declaration.read_text("utf-8").replace(
        "metric: accuracy, rows: [learned], against", "metric: sparsity, rows: [learned], against"
    )
    declaration.write_text(text, "utf-8")
    (small / "published" / "paper.yaml").write_text(
        "table_of_paper: {softmax: {accuracy: 0.893, sparsity: 0.001}, sharmix: {accuracy: 0.91, sparsity: 0}}"
    )
    name, *numbers = decided("SharMiX wins")
    assert name == "another network"
    assert numbers == pytest.approx([15.0, 15.1 / 10])


def test_a_printed_deviation_of_sparsity_counts_and_one_of_0_allows_the_same_number_alone(decided, small):
    def printed(sparsity):
        softmax, own = "{accuracy: 0.9, sparsity: 0}", f"{{accuracy: 0.9, sparsity: {sparsity}}}"
        (small / "published" / "paper.yaml").write_text(f"table_of_paper: {{softmax: {softmax}, sharmix: {own}}}")
        return decided("SharMiX is dense", sparsity=0.3)[0]

    assert printed("[0.0, 0.001]") == printed("[0.0, 0.0]") == "not found"
    assert printed("[0.3, 0.0]") == "measured on train"


def test_the_numbers_of_another_experiment_explain_nothing(decided, small):
    declaration = small / "tables.yaml"
    text = declaration.read_text("utf-8").replace(
        "network\n      experiment: airline", "network\n      experiment: digits"
    )
    declaration.write_text(text, "utf-8")
    assert decided("SharMiX is accurate")[0] == "not found"


def test_the_rule_names_every_hypothesis(small):
    (rule,) = [rule for rule in rules(loaded(small).declaration) if "comes near" in rule]
    assert "within 2 published deviations" in rule
    assert "Tried: measured on train; another network. That a number appears" in rule
