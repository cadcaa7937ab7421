"""Settings that cannot be: one message, exit status 1, and nothing written; and code of the user's own that fails."""

import errno
import os
import re

import pytest
import torch

from tests.end_to_end.runner import QUICK, command_line, only_record, records

pytestmark = pytest.mark.medium

COMMANDS = {  # a command line, and words of the one message
    ("~seed",): "data.seed: Interpolation key 'seed' not found",
    ("~trainer",): "trainer.accelerator is missing; give trainer.accelerator=VALUE",
    ("trainer=5",): "trainer=5: Config group override must be a string or a list",
    ("name=${name}",): "name: Recursive interpolation detected",
    ("hydra.verbose={a:b}",): "hydra.verbose={a:b}",
    ("hydra.launcher.n_jobs=x", "hydra/launcher=cores"): "Value 'x' of type 'str' could not be converted to Integer",
    ("hydra.run.dir=/etc/passwd",): "hydra.run.dir=/etc/passwd",
    (f"paths.outputs={'a' * 300}",): "File name too long; give another folder with paths.outputs=FOLDER",
    ("-m", "seed=range(1,1)"): "an override names no value",
    ("-m", "seed=interval(0,1)"): "BasicSweeper does not support sweep type",
    ("activation=custom",): "activation.name is missing; give activation.name=VALUE",
    ("experiment=airlines",): "Could not find 'experiment/airlines'; did you mean experiment=airline?",
    ("activation=sharmx_learned",): "; did you mean activation=sharmix_learned?",
    ("airline",): "airline is no setting; a setting is NAME=VALUE, such as experiment=airline",
    ("--experiment=airline",): "--experiment: a setting has no dashes; give experiment=NAME",
    ("seed=21,42",): "seed=21,42: several values; add -m to run each, or write [VALUE,VALUE] where a list is allowed",
    ("lr=0.1",): "Could not override 'lr'.\nAllowed: hydra, name, seed,",
    ("optimizer.foo=1",): "Could not override 'optimizer.foo'.\nAllowed: ",
    ("activation=custom", "activation.parameters.q=1"): "q'.\nTo append to your config use +activation.parameters.q=1",
    ("activation.Q=1.5",): "Did you mean q? Allowed: alpha, q, r,",
    ("trainer.max_epochz=3",): "Did you mean max_epochs? Allowed: max_epochs,",
    ("seed=[1",): "Error parsing override 'seed=[1'\nno viable alternative at input '[1'",
    ("paths.data=~/data",): "For ~ write paths.data=$HOME/data",
    ("paths.data=disk (1)/a=b",): "If the value is meant so, put quotes within quotes: \"paths.data='disk (1)/a=b'\"",
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


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("_target_: a\n  b: [1\n", "broken.yaml"),
        ("name: \u00e9", "broken.yaml: 'utf-8' codec"),
        ("# @package a b c", "broken.yaml: Too many components"),
        ("a: " + "[" * 3000 + "]" * 3000, "broken.yaml: maximum recursion depth"),
        ("a: ${", "a: no viable alternative at input"),
    ],
    ids=["yaml", "latin-1", "package", "nested", "interpolation"],
)
def test_a_file_of_settings_that_cannot_be_read_is_one_message(content, said, tmp_path):
    (tmp_path / "conf" / "model").mkdir(parents=True)
    (tmp_path / "conf" / "model" / "broken.yaml").write_text(content, encoding="latin-1")
    printed = message_of(tmp_path / "run", f"--config-dir={tmp_path}/conf", "model=broken")
    assert said in printed
    assert len(printed.splitlines()) <= 4


def test_a_folder_with_the_record_of_another_run_is_refused(tmp_path):
    shared = ("trainer.max_epochs=1", f"hydra.run.dir={tmp_path}/shared")
    assert command_line(tmp_path / "outputs", *QUICK, *shared)[0] == 0
    status, printed = command_line(tmp_path / "outputs", *QUICK, *shared, "seed=42")
    assert status == 1
    assert "another run has its record there" in printed
    assert only_record(tmp_path)["seed"] == 21


def full(*arguments):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class FullFile:
    """A file on a full disk."""

    write, flush = full, full


def save_to_full_disk(content, file, save=torch.save):
    save(content, FullFile())


@pytest.mark.parametrize(("place", "name", "fails"), [(os, "fsync", full), (torch, "save", save_to_full_disk)])
def test_a_disk_that_cannot_be_written_is_named_with_the_remedy(place, name, fails, tmp_path, monkeypatch):
    monkeypatch.setattr(place, name, fails)
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
