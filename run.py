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
    from hydra.types import RunMode
    from omegaconf import DictConfig

    from experiments.errors import ConfigurationError
    from experiments.failures import machine_failures
    from experiments.files import remove_empty_folders
    from experiments.hints import one_message, own_code_named
    from experiments.job import check_objective, objective, perform
    from experiments.resolvers import register_resolvers, resolved
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
register_resolvers()


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(config: DictConfig) -> float | None:
    hydra_config = HydraConfig.get()
    folder = Path(hydra_config.runtime.output_dir)
    if folder in (Path.cwd(), *Path.cwd().parents):
        raise ConfigurationError(f"hydra.run.dir={folder} is not allowed; give a folder that holds nothing else")
    try:
        settings = checked_settings(resolved(config))
        if hydra_config.mode == RunMode.MULTIRUN:
            refuse_several_processes(settings)
        if is_optimising():
            check_objective(settings.objective, settings.data.get("validation_fraction"))
        with own_code_named(settings.model_dump()):
            record = perform(settings, folder, place_in_sweep())
        return objective(settings, record) if record and is_optimising() else None
    finally:  # Hydra makes the folder beforehand; a run that failed may leave it empty
        notes = hydra_config.output_subdir
        remove_empty_folders(folder, Path(config.paths.outputs), ignored=[notes] if notes else [])


if __name__ == "__main__":
    if missing := missing_packages(sys.argv[1:]):
        print(missing, file=sys.stderr)
        sys.exit(1)
    try:
        with told(how_it_goes_on), one_message(sys.argv[1:]), machine_failures():
            main()
    finally:
        failed = report_failures()
    sys.exit(1 if failed else 0)  # an optimising sweep continues after a failed run
