"""Train, evaluate and record one experiment.

python run.py experiment=airline activation=sharmix_learned seed=21 paths.data=../shared/data
python run.py -m experiment=digits activation=softmax,sparsemax seed=21,42 hydra/launcher=joblib
python run.py --help
"""

import contextlib
import sys
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from experiments.configuration import check_override_keys, refuse_several_processes, register, typed
from experiments.errors import UserError
from experiments.job import perform

register()


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(config: DictConfig) -> None:
    folder = Path(HydraConfig.get().runtime.output_dir)
    try:
        settings = typed(config)
        if HydraConfig.get().mode == RunMode.MULTIRUN:
            refuse_several_processes(settings)
        perform(settings, folder)
    except UserError:
        with contextlib.suppress(OSError):  # not empty, or gone by another process
            folder.rmdir()  # Hydra made it for a run that never began
        raise


if __name__ == "__main__":
    try:
        check_override_keys([argument for argument in sys.argv[1:] if not argument.startswith("-")])
    except UserError as error:
        sys.exit(f"error: {error}")
    main()
