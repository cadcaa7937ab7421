"""A run of a sweep that fails."""

from hydra.core.utils import JobReturn, JobStatus
from hydra.types import RunMode
from omegaconf import OmegaConf

from experiments.errors import ConfigurationError
from experiments.sweep import Sweep


def test_a_refused_run_leaves_no_folder_of_its_experiment(tmp_path, capsys):
    sweep, folder = Sweep(), tmp_path / "outputs" / "copy"  # Hydra makes it for each experiment of a sweep
    folder.mkdir(parents=True)
    config = OmegaConf.create({"hydra": {"mode": RunMode.MULTIRUN, "sweep": {"dir": str(folder)}}})
    failed = JobReturn(["seed=-1"], status=JobStatus.FAILED, _return_value=ConfigurationError("seed=-1 is not allowed"))
    sweep.on_job_end(config, failed)
    assert capsys.readouterr().err == "failed: seed=-1: seed=-1 is not allowed\n"
    assert not folder.exists()
