"""The list of studied networks, and the run that trains each of them."""

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from experiments.composition import settings_of
from experiments.errors import ConfigurationError
from experiments.identity import run_id
from experiments.run_folder import RECORD
from experiments.settings import RunSettings
from reporting.yaml_files import read_yaml

NETWORKS = Path(__file__).with_name("studied_networks.yaml")
OUTPUTS = Path("outputs")  # of run.py

Networks = dict[str, dict[str, dict[str, list]]]


class Run(NamedTuple):
    """The run of run.py that trains a network.

    Attributes:
        name: the path of its folder below the outputs, without the seed.
        settings: the settings of the run, without the seed.
    """

    name: Path
    settings: RunSettings

    def folder(self, seed: int) -> Path:
        return OUTPUTS / self.name / f"seed-{seed}"

    def is_finished(self, seed: int) -> bool:
        return (self.folder(seed) / RECORD).is_file()


def studied_networks(data_sets: Iterable[str]) -> Networks:
    """The overrides of run.py and the seeds of each network, by data set and activation.

    Raises:
        ConfigurationError: the list has no such data set.
    """
    listed = read_yaml(NETWORKS)
    if unknown := {*data_sets} - {*listed["data_sets"]}:
        raise ConfigurationError(
            f"{NETWORKS}: there is no data set {', '.join(sorted(unknown))}; there are {', '.join(listed['data_sets'])}"
        )
    return {
        name: {
            activation: {"overrides": entry["overrides"] + overrides, "seeds": entry["seeds"]}
            for activation, overrides in listed["activations"].items()
        }
        for name, entry in listed["data_sets"].items()
        if name in data_sets
    }


def run_of(overrides: Sequence[str]) -> Run:
    """The run of a network from its overrides of run.py. The first override names the experiment."""
    return _run_of(tuple(overrides))


@cache  # composing takes a tenth of a second
def _run_of(overrides: tuple[str, ...]) -> Run:
    first, *others = overrides
    settings = settings_of(first.removeprefix("experiment="), *others)
    return Run(Path(settings.name, f"{settings.activation.name}-{run_id(settings.model_dump())}"), settings)


def finished_folder(overrides: Sequence[str], seed: int) -> Path:
    """The folder of a finished run.

    Raises:
        ConfigurationError: there is no finished run; says how to train it.
    """
    run = run_of(overrides)
    if not run.is_finished(seed):
        command = " ".join(["python run.py", *overrides, f"seed={seed} paths.data=FOLDER"])
        raise ConfigurationError(
            f"{run.folder(seed)}: there is no finished run; train it by `make studied_networks` or `{command}`"
        )
    return run.folder(seed)
