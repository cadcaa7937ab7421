"""Train, evaluate and record one experiment.

python run.py experiment=airline activation=sharmix_learned seed=21 paths.data=../shared/data
python run.py -m experiment=digits activation=softmax,sparsemax seed=21,42 hydra/launcher=cores
python run.py --help
"""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

if not find_spec("hydra"):
    sys.exit("run.py needs the project's packages: run `make setup`, then `source .venv/bin/activate`")

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from experiments.composition import composing, resolved
from experiments.messages import one_message
from experiments.run_folder import folder_of
from experiments.settings import checked_settings
from experiments.sweep import line_prefix

sys.path.append(os.getcwd())  # data sets, networks and metrics of the user's own
OmegaConf.register_new_resolver(
    "from_here", lambda path, *, _root_: str(Path(_root_.hydra.runtime.cwd) / path), replace=True
)


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(config: DictConfig) -> None:
    settings = checked_settings(resolved(config))
    prefix = line_prefix(settings)
    hydra_config = HydraConfig.get()
    given = hydra_config.run.dir if hydra_config.mode == RunMode.RUN else ""  # in a sweep, each run has its own folder

    from experiments.run import Run  # it imports torch, which --help and --cfg do not need

    Run(settings, Path(given) if given else folder_of(settings), prefix).complete()


if __name__ == "__main__":
    with one_message(), composing():
        main()
