"""The list of studied networks, and the commands that train them."""

import re

import pytest

from experiments.composition import settings_of
from experiments.identity import ROOT
from experiments.run_folder import RECORD
from studies import networks
from studies.networks import run_folder, studied_networks, training_commands
from studies.study import load_study

ALL = [*networks.read_yaml(networks.NETWORKS)["data_sets"]]


def test_the_settings_of_a_study_hold_the_runs_that_it_takes():
    taken = load_study("calibration").settings["networks"]
    assert {*taken} == {*networks.read_yaml(ROOT / "studies" / "calibration.yaml")["networks"]}
    listed = networks.read_yaml(networks.NETWORKS)["data_sets"]["digits"]
    overrides = [*listed["overrides"], "activation=sparsemax"]
    assert taken["digits"]["sparsemax"] == {"overrides": overrides, "seeds": listed["seeds"]}


@pytest.mark.medium
def test_each_network_is_a_run_with_the_orders_that_its_name_says():
    found = {}
    for data_set, own in studied_networks(ALL).items():
        for name, network in own.items():
            settings = settings_of(*network["overrides"])
            found[data_set, name] = run_folder(settings, 21)
            numbers = [float(number) for number in re.findall(r"\d+\.\d+", name)]
            set_to = [getattr(settings.activation, key, None) for key in ("alpha", "q", "r")]
            assert [value for value in set_to if value is not None] == numbers
    assert len({*found.values()}) == len(found) == 5 * len(ALL)


@pytest.mark.medium
def test_a_command_trains_the_seeds_that_are_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(networks, "OUTPUTS", tmp_path)
    for data_set, of_set in studied_networks(ALL).items():
        for network in of_set.values():
            settings = settings_of(*network["overrides"])
            for seed in network["seeds"][data_set == "digits" :]:
                folder = run_folder(settings, seed)
                folder.mkdir(parents=True)
                (folder / RECORD).touch()
    first, *others = training_commands(["paths.data=here"])
    assert first[2:] == [
        *["-m", "hydra/launcher=cores", "seed=21", "progress=none"],
        *["experiment=digits", "trainer.max_epochs=60", "data.test_fraction=0.5", "activation=softmax"],
        "paths.data=here",
    ]
    assert len(others) == 4
