"""Trains the networks of the studies by run.py, without the runs that are finished.

python -m studies.train_networks [KEY=VALUE of run.py, such as paths.data=FOLDER ...]
"""

import subprocess
import sys

from experiments.identity import ROOT
from studies.networks import run_of, studied_networks
from studies.study import available_studies, load_study


def commands(overrides: list[str]) -> list[list[str]]:
    """A command for each network with a seed that has no finished run. The overrides come last in the command."""
    taken = {name for study in available_studies() for name in load_study(study).settings.get("networks", ())}
    found = []
    for networks in studied_networks(taken).values():
        for network in networks.values():
            run = run_of(network["overrides"])
            if missing := [str(seed) for seed in network["seeds"] if not run.is_finished(seed)]:
                sweep = ["-m", "hydra/launcher=joblib", f"seed={','.join(missing)}", "progress=none"]
                found.append([sys.executable, str(ROOT / "run.py"), *sweep, *network["overrides"], *overrides])
    return found


def main(overrides: list[str]) -> None:
    """Command line.

    Raises:
        SystemExit: with the status of the first command that failed.
    """
    for command in commands(overrides):
        if status := subprocess.run(command, check=False).returncode:
            raise SystemExit(status)


if __name__ == "__main__":
    main(sys.argv[1:])
