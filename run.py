"""Train, evaluate and record one experiment.

python run.py experiment=airline activation=sharmix_learned seed=21 paths.data=../shared/data
python run.py -m experiment=digits activation=softmax,sparsemax seed=21,42 hydra/launcher=joblib
python run.py --help
"""

import sys
from pathlib import Path
from typing import NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig
from rich.console import Console
from rich.markup import escape

from experiments.configuration import check_override_keys, register, typed
from experiments.errors import UserError
from experiments.job import perform

register()


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(config: DictConfig) -> None:
    job = HydraConfig.get()
    folder = Path(job.runtime.output_dir)
    try:
        perform(typed(config), folder)
    except UserError as error:
        if not any(folder.iterdir()):
            folder.rmdir()  # Hydra made it for a run that never began
        if job.mode == RunMode.MULTIRUN:
            raise  # the launcher collects it, and goes on with the other jobs
        stop(error)


def stop(error: UserError) -> NoReturn:
    """Say what is wrong and end with status 2."""
    Console(stderr=True).print("[bold red]error:[/]", escape(str(error)), highlight=False, soft_wrap=True)
    sys.exit(2)


if __name__ == "__main__":
    try:
        check_override_keys([argument for argument in sys.argv[1:] if not argument.startswith("-")])
    except UserError as error:
        stop(error)
    main()
