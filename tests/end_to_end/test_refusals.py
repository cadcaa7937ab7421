"""Settings that cannot be: one message, exit status 1, and nothing written; and code of the user's own that fails."""

import errno
import os
import re

import pytest

from tests.end_to_end.runner import QUICK, command_line, only_record, records

pytestmark = pytest.mark.medium

COMMANDS = {  # a command line, and words of the one message
    ("~seed",): "Interpolation key 'seed' not found",
    ("activation=custom",): "activation.name is missing; give activation.name=VALUE",
    ("experiment=airlines",): "Could not find 'experiment/airlines'",
    ("activation.Q=1.5",): "Did you mean q? Allowed: alpha, q, r,",
    ("trainer.max_epochz=3",): "Did you mean max_epochs? Allowed: max_epochs,",
    ("seed=[1",): "no viable alternative at input '[1'",
    ("--config-dir=nowhere",): "config directory",
    ("paths.outputs=",): "paths.outputs='' is not allowed; it should be a folder; is a variable of the shell not set?",
    ("paths.data=${oc.env:NOPE}",): "Environment variable 'NOPE' not found",
    ("hydra.run.dir=.",): "is not allowed; give a folder that holds nothing else",
    ("hydra.job.chdir=true",): "hydra.job.chdir=true is not allowed",
    ("-m", "hydra.sweep.dir=mysweep"): "hydra.sweep.dir and hydra.sweep.subdir are not allowed; give paths.outputs=",
    ("hydra/launcher=slurm", "-m"): "pip install '.[slurm]' or '.[ray]'",
    ("-m", "trainer.devices=2", "seed=21,42"): "repeats the sweep",
    ("model=embedding_bag",): "model.vocabulary_size is missing; give model.vocabulary_size=VALUE",
    ("module=translator",): "module.network",
    ("data._target_=nowhere.Mine",): "data._target_=nowhere.Mine cannot be imported",
    ("activation=alpha_relu", "trainer.devices=2"): "activation.tau",  # several processes do not calibrate it
    ("optimizer.learning_rate=1e38",): "diverged; a lower optimizer.learning_rate may help",
}


def message_of(folder, *arguments):
    """What a refused command prints, without Hydra's line about a job and the progress of a training."""
    (folder / "runs").mkdir(parents=True)  # Hydra must not make folders beside it
    flags = [one for one in arguments if one.startswith("-")]
    rest = [one for one in arguments if one not in flags]
    status, printed = command_line(folder / "runs" / "outputs", *flags, *QUICK[:2], "progress=none", *rest)
    assert status == 1, (arguments, status, printed)
    assert "Traceback" not in printed, (arguments, printed)
    assert "HYDRA_FULL_ERROR" not in printed, (arguments, printed)
    return printed


def test_what_is_refused_is_one_message_and_nothing_is_written(tmp_path):
    for number, (arguments, words) in enumerate(COMMANDS.items()):
        assert words in message_of(tmp_path / str(number), *arguments)
        left = [path.name for path in (tmp_path / str(number) / "runs").rglob("*")]
        assert left == (["outputs", "digits", "multirun.yaml"] if left and "-m" in arguments else []), arguments


def test_a_file_of_settings_that_is_no_yaml_is_one_message(tmp_path):
    (tmp_path / "conf" / "model").mkdir(parents=True)
    (tmp_path / "conf" / "model" / "broken.yaml").write_text("_target_: a\n  b: [1\n")
    assert "broken.yaml" in message_of(tmp_path / "run", f"--config-dir={tmp_path}/conf", "model=broken")


def test_a_folder_with_the_record_of_another_run_is_refused(tmp_path):
    shared = ("trainer.max_epochs=1", f"hydra.run.dir={tmp_path}/shared")
    assert command_line(tmp_path / "outputs", *QUICK, *shared)[0] == 0
    status, printed = command_line(tmp_path / "outputs", *QUICK, *shared, "seed=42")
    assert status == 1
    assert "another run has its record there" in printed
    assert only_record(tmp_path)["seed"] == 21


def test_a_disk_that_cannot_be_written_is_named_with_the_remedy(tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    status, printed = command_line(tmp_path / "outputs", *QUICK)
    assert status == 1
    assert re.search(r"/seed-21/\S+: No space left on device; give another folder with paths\.outputs=FOLDER", printed)
    assert "Traceback" not in printed
    assert not records(tmp_path)


def test_code_of_the_users_own_that_fails_shows_its_traceback(tmp_path, monkeypatch):
    (tmp_path / "failing.py").write_text(
        "import sharmix\n"
        "class Failing(sharmix.Softmax):\n"
        "    def loss(self, *arguments, **options):\n"
        "        raise KeyError('own')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(KeyError, match="own"):
        command_line(tmp_path / "outputs", *QUICK, "activation=custom", "activation.name=failing.Failing")
    assert not records(tmp_path / "outputs")
