"""Train, evaluate and record one experiment.

python run.py experiment=airline activation=sharmix_learned seed=21 paths.data=../shared/data
python run.py -m experiment=digits activation=softmax,sparsemax seed=21,42 hydra/launcher=joblib
python run.py --help
"""

import os
import sys
from pathlib import Path

from experiments.interruption import importing, listen, told

if __name__ == "__main__":
    listen()
with importing():
    import hydra
    from hydra.core.hydra_config import HydraConfig
    from hydra.errors import CompactHydraException
    from hydra.types import RunMode
    from omegaconf import DictConfig, OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    from experiments.failures import machine_failures
    from experiments.files import remove_empty_folders
    from experiments.hints import hints
    from experiments.identity import run_id
    from experiments.job import check_objective, objective, perform
    from experiments.settings import checked_settings
    from experiments.sweep import (
        how_it_goes_on,
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
    finally:  # Hydra made the folder for a run that may have left nothing
        notes = hydra_config.output_subdir
        remove_empty_folders(folder, Path(config.paths.outputs), ignored=[notes] if notes else [])


if __name__ == "__main__":
    if missing := missing_packages(sys.argv[1:]):
        print(missing, file=sys.stderr)
        sys.exit(1)
    try:
        os.environ.setdefault("HYDRA_FULL_ERROR", "1")
        with told(how_it_goes_on), machine_failures():
            main()
    except CompactHydraException as error:
        print(
            error,
            *filter(None, [isinstance(error.__cause__, OmegaConfBaseException) and error.__cause__]),
            sep="\n",
            file=sys.stderr,
        )
        print("\nSet the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.", file=sys.stderr)
        print(*hints(sys.argv[1:]), sep="\n", end="", file=sys.stderr)
        sys.exit(1)
    finally:
        failed = report_failures()
    sys.exit(1 if failed else 0)  # an optimising sweep goes on after a failed run
