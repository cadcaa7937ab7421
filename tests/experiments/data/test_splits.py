"""Splits keep class shares, keep groups whole and can be told apart by their hash."""

import numpy as np
import pytest

from experiments.data.splits import groups_of_repeats, stratified_group_split


def shares(labels):
    return np.bincount(labels) / len(labels)


def test_split_keeps_groups_whole_and_shares_of_size_and_class():
    """Of three unbalanced classes; most examples are alone, the others in groups of up to six."""
    generator, alone = np.random.default_rng(0), np.arange(3000)
    labels = generator.choice(3, size=3000, p=[0.63, 0.21, 0.16])
    groups = np.where(generator.random(3000) < 0.2, alone // 6, alone + 3000)
    for test_fraction in (0.1, 0.2, 0.37):
        train, test = stratified_group_split(labels, groups, test_fraction, seed=21)

        assert sorted([*train, *test]) == list(range(len(labels))), test_fraction
        assert not set(groups[train]) & set(groups[test]), test_fraction
        assert len(test) / len(labels) == pytest.approx(test_fraction, abs=0.002)
        assert shares(labels[test]) == pytest.approx(shares(labels), abs=0.003), test_fraction
        names, sizes = np.unique(groups, return_counts=True)
        assert np.isin(names[sizes > 1], groups[test]).mean() == pytest.approx(test_fraction, abs=0.1)


def test_a_class_may_be_wanting_on_the_test_side_where_that_is_asked():
    labels, fraction = ["common"] * 20 + ["rare"], 0.2
    _, test = stratified_group_split(labels, range(21), fraction, seed=0, classes_in_both=False)
    assert {labels[index] for index in test} == {"common"}
    with pytest.raises(ValueError, match=r"class 'rare' is on the test side"):
        stratified_group_split(labels, range(21), fraction, seed=0)
    with pytest.raises(ValueError, match=r"fraction=0\.8 is not allowed; .* class 'rare' is on the training side"):
        stratified_group_split(labels, range(21), 0.8, seed=0, classes_in_both=False)


def test_whole_groups_come_as_near_the_share_as_they_can():
    labels = ["a"] * 50 + ["b"] * 50
    groups = np.arange(100) // 5

    _, test = stratified_group_split(labels, groups, 0.26, seed=0)

    assert np.bincount(test // 50).tolist() == [15, 15]
    pairs = np.arange(8) // 2  # one of eight is asked for, and a pair is as far from it as none
    assert len(stratified_group_split(["a"] * 8, pairs, 1 / 8, seed=0, classes_in_both=False)[1]) == 0


def test_repeats_are_joined_through_chains_of_ids_and_texts():
    ids = ["1", "1", "2", "3", "4", "5"]
    texts = ["x", "y", "y", "z", "1", "z"]

    first, second, third, fourth, fifth, sixth = groups_of_repeats(ids, texts)

    assert first == second == third
    assert fourth == sixth
    assert len({first, fourth, fifth}) == 3
