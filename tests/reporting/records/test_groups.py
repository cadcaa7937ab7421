"""Labels and styles of configurations."""

import pytest

from reporting.records.kept_runs import count_seeds
from tests.reporting.synthetic_records import changed, grouped, make_record


def test_configurations_of_one_activation_differ_in_line_and_filling_alone():
    (groups,) = grouped([make_record("sharmix_fixed", q=q, r=1.5) for q in (1.25, 1.5, 1.75)])
    styles = [group.style for group in groups]
    assert {(style["color"], style["marker"]) for style in styles} == {("#009E73", "D")}
    assert len({style["linestyle"] for style in styles}) == 3
    assert len({style["fillstyle"] for style in styles}) == 3


def test_a_configuration_looks_the_same_in_every_panel():
    one = [make_record("sharmix_fixed", q=1.5, r=1.5)]
    first, second = grouped(one, [make_record("sharmix_fixed", q=1.25, r=1.5), *one])
    assert first[0].style == second[1].style != second[0].style


def test_configurations_that_share_a_label_are_told_apart_by_the_settings_that_differ():
    rates = [changed(make_record(), optimizer={"learning_rate": rate}) for rate in (1.0, 0.003, 1e-5)]
    (groups,) = grouped([*rates, make_record("sparsemax")])
    assert [group.label for group in groups] == [
        *[f"softmax, learning_rate={rate}" for rate in ("1e-05", "0.003", "1")],
        "sparsemax",
    ]
    assert [group.runs.records[0].config["optimizer"].get("learning_rate") for group in groups] == [
        1e-5,
        0.003,
        1,
        None,
    ]
    both = [changed(run, trainer={"max_epochs": epochs}) for run in rates[:2] for epochs in (5, 10)]
    assert [group.label for group in grouped(both)[0]] == [
        f"softmax, learning_rate={rate}, max_epochs={epochs}" for rate in ("0.003", "1") for epochs in (5, 10)
    ]


@pytest.mark.parametrize(
    "other",
    [
        changed(make_record(), data={"train_size": None}),
        make_record(),  # as of code that did not know the setting
        changed(make_record(), data={"train_size": "10847"}),
    ],
)
def test_no_configuration_is_lost_whatever_the_values_that_differ(other):
    known = changed(make_record(), data={"train_size": 10847})
    (groups,) = grouped([other, known])
    labels = {group.runs.records[0].run_id: group.label for group in groups}
    assert labels.keys() == {other["run_id"], known["run_id"]}
    same_text = other["config"]["data"].get("train_size") == "10847"
    apart = f" [{known['run_id'][:8]}]" if same_text else ", train_size=10847"
    assert labels[known["run_id"]] == f"softmax{apart}"


def test_configurations_with_equal_settings_are_told_apart_by_run():
    (groups,) = grouped([make_record(), make_record() | {"run_id": "0123456789ab"}])
    assert all(group.label == f"softmax [{group.runs.records[0].run_id[:8]}]" for group in groups)
    assert len(groups) == 2


def test_settings_with_one_name_do_not_share_a_label():
    one, two = (changed(make_record(), optimizer={"name": a}, trainer={"name": b}) for a, b in ("ab", "ba"))
    assert all("[" in group.label for group in grouped([one, two])[0])


def test_the_seeds_of_a_configuration_belong_together_in_any_order():
    (groups,) = grouped([make_record(name, seed) for seed in (1, 2) for name in ("softmax", "sparsemax")])
    assert [(group.label, len(group.runs)) for group in groups] == [("softmax", 2), ("sparsemax", 2)]


def test_configurations_that_differ_in_many_settings_are_told_apart_by_run():
    first, second = (changed(make_record(), optimizer=dict.fromkeys("abc", value)) for value in (1, 2))
    (groups,) = grouped([first, second])
    assert {group.label for group in groups} == {f"softmax [{one['run_id'][:8]}]" for one in (first, second)}


def test_where_data_are_kept_does_not_tell_configurations_apart():
    here, there = (changed(make_record(), data={"folder": name}, optimizer={"rate": name}) for name in ("a", "b"))
    assert [group.label for group in grouped([here, there])[0]] == ["softmax, rate=a", "softmax, rate=b"]


def test_activations_from_outside_differ_in_line():
    (groups,) = grouped([make_record("mine.First"), make_record("mine.Second")])
    first, second = (group.style for group in groups)
    assert (first["color"], first["linestyle"]) != (second["color"], second["linestyle"])


def test_seeds_are_counted_from_the_fewest_to_the_most_of_a_configuration():
    one, two = [make_record()], [make_record("sparsemax", seed) for seed in (1, 2)]
    shown = [count_seeds(groups) for groups in ([], *grouped(one, two, one + two))]
    assert shown == ["0 seeds", "1 seed", "2 seeds", "1 to 2 seeds"]
