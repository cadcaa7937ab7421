"""Train, evaluate and record one experiment.

python run.py experiment=airline activation=sharmix_learned seed=21 paths.data=../shared/data
python run.py -m experiment=digits activation=softmax,sparsemax seed=21,42 hydra/launcher=joblib
python run.py --help
"""

import contextlib
import os
import sys
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from experiments.errors import UserError
from experiments.hints import hints
from experiments.identity import run_id
from experiments.job import check_objective, objective, perform
from experiments.settings import checked_settings
from experiments.sweep import (
    is_optimising,
    missing_packages,
    place_in_sweep,
    refuse_several_processes,
    report_failures,
)

sys.path.append(os.getcwd())  # data sets, networks and metrics of the user's own
# Hydra hands both to the processes of every launcher.
OmegaConf.register_new_resolver("run_id", lambda *, _root_: run_id(_root_), replace=True)
OmegaConf.register_new_resolver(
    "from_here", lambda path, *, _root_: str(Path(_root_.hydra.runtime.cwd) / path), replace=True
)


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(config: DictConfig) -> float | None:
    hydra_config = HydraConfig.get()
    folder = Path(hydra_config.runtime.output_dir)
    try:
        settings = checked_settings(OmegaConf.to_container(config, resolve=True))
        if hydra_config.mode == RunMode.MULTIRUN:
            refuse_several_processes(settings)
        if is_optimising():
            check_objective(settings.objective, settings.data.get("validation_fraction"))
        record = perform(settings, folder, place_in_sweep())
        return objective(settings, record) if record and is_optimising() else None
    except UserError:
        with contextlib.suppress(OSError):  # not empty, or gone by another process
            folder.rmdir()  # Hydra made it for a run that never began
        raise


if __name__ == "__main__":
    if missing := missing_packages(sys.argv[1:]):
        print(missing, file=sys.stderr)
        sys.exit(1)
    try:
        main()
    except SystemExit as stopped:
        if stopped.code:
            print(*hints(sys.argv[1:]), sep="\n", end="", file=sys.stderr)
        raise
    finally:
        failed = report_failures()
    sys.exit(1 if failed else 0)  # an optimising sweep goes on after a failed run
