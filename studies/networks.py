"""The networks whose outputs studies read, and the runs that train them.

python -m studies.networks [KEY=VALUE of run.py, such as paths.data=FOLDER ...]

The command trains all networks by run.py. It leaves out the runs that are finished.
"""

import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from experiments.composition import settings_of
from experiments.errors import ConfigurationError
from experiments.identity import ROOT
from experiments.run_folder import RECORD, folder_of
from experiments.settings import RunSettings
from reporting.records.yaml_files import read_yaml

NETWORKS = Path(__file__).with_name("studied_networks.yaml")
OUTPUTS = Path("outputs")  # of run.py


def studied_networks(data_sets: Iterable[str]) -> dict[str, dict[str, dict[str, list]]]:
    """The overrides of run.py and the seeds of each network, by data set and activation."""
    listed = read_yaml(NETWORKS)
    return {
        name: {
            activation: {"overrides": entry["overrides"] + overrides, "seeds": entry["seeds"]}
            for activation, overrides in listed["activations"].items()
        }
        for name in data_sets
        for entry in [listed["data_sets"][name]]
    }


def run_folder(settings: RunSettings, seed: int) -> Path:
    """The folder in which run.py trains a run with a seed."""
    paths = settings.paths.model_copy(update={"outputs": str(OUTPUTS)})
    return folder_of(settings.model_copy(update={"seed": seed, "paths": paths}))


def finished_folder(overrides: Sequence[str], seed: int) -> Path:
    """The folder of a finished run.

    Raises:
        ConfigurationError: there is no finished run; says how to train it.
    """
    folder = run_folder(settings_of(*overrides), seed)
    if not (folder / RECORD).is_file():
        command = " ".join(["python run.py", *overrides, f"seed={seed} paths.data=FOLDER"])
        raise ConfigurationError(
            f"{folder}: there is no finished run; train it by `make studied_networks` or `{command}`"
        )
    return folder


def training_commands(overrides: list[str]) -> list[list[str]]:
    """A command for each network that lacks a finished run for some seed. The overrides come last in it."""
    commands = []
    for networks in studied_networks(read_yaml(NETWORKS)["data_sets"]).values():
        for network in networks.values():
            settings = settings_of(*network["overrides"])
            if missing := [seed for seed in network["seeds"] if not (run_folder(settings, seed) / RECORD).is_file()]:
                sweep = ["-m", "hydra/launcher=cores", f"seed={','.join(map(str, missing))}", "progress=none"]
                commands.append([sys.executable, str(ROOT / "run.py"), *sweep, *network["overrides"], *overrides])
    return commands


if __name__ == "__main__":
    for command in training_commands(sys.argv[1:]):
        if status := subprocess.run(command, check=False).returncode:
            raise SystemExit(status)
