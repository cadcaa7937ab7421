"""Settings that cannot be: one message, exit status 1, and nothing written; and code of the user's own that fails."""

import sys
from pathlib import Path

import pytest

from tests.end_to_end.runner import QUICK, command_line, only_record, records
from tests.sharmix.cases import every_case

pytestmark = pytest.mark.medium

COMMANDS = {
    ("~seed",): "data.seed: Interpolation key 'seed' not found",
    ("activation=custom",): "activation.name is missing; give activation.name=VALUE",
    ("data=5",): "data=5 is not allowed. Allowed: airline, cifar100, ",
    ("--config-dir=nowhere",): "config directory",
    ("paths.outputs=",): "paths.outputs='' is not allowed; it should be a folder; is a variable of the shell not set?",
    ("name=../x",): "name='../x' is not allowed; it should be the name of a folder",
    ("hydra.run.dir=/",): "hydra.run.dir=/ is not allowed; give a folder that holds nothing else",
    ("-m", "name=../x", "seed=1,2"): "name='../x' is not allowed",
    ("-m", "seed=range(0)"): "the sweep has no run",
}


def message_of(folder: Path, *arguments: str) -> list[str]:
    """The lines that a refused command prints, without those of Hydra about its stack trace."""
    (folder / "runs").mkdir(parents=True)  # Hydra must not make folders beside it
    flags = [one for one in arguments if one.startswith("-")]
    rest = [one for one in arguments if one not in flags]
    status, printed = command_line(folder / "runs" / "outputs", *flags, *QUICK, *rest)
    assert status == 1, (arguments, status, printed)
    assert "Traceback" not in printed, (arguments, printed)
    return [line for line in printed.splitlines() if line and not line.startswith(("Error executing", "Set the envir"))]


def test_what_is_refused_is_one_message_and_nothing_is_written(tmp_path: Path) -> None:
    with every_case() as case:
        for number, (arguments, words) in enumerate(COMMANDS.items()):
            with case(arguments=arguments):
                (message,) = message_of(tmp_path / str(number), *arguments)
                assert words in message
                assert not [*(tmp_path / str(number) / "runs").iterdir()]


def test_a_file_of_settings_that_is_no_yaml_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "conf" / "model").mkdir(parents=True)
    (tmp_path / "conf" / "model" / "broken.yaml").write_text("_target_: a\n  b: [1\n")
    printed = "\n".join(message_of(tmp_path / "run", f"--config-dir={tmp_path}/conf", "model=broken"))
    assert "broken.yaml" in printed


def test_a_job_of_a_sweep_with_wrong_settings_does_not_end_the_others(tmp_path: Path) -> None:
    sweep = ("-m", *QUICK, "trainer.max_epochs=1", "seed=../x,21,${nope}")
    status, printed = command_line(tmp_path / "outputs", *sweep)
    assert status == 1
    assert "Traceback" not in printed
    assert "seed='../x' is not allowed" in printed
    assert "Interpolation key 'nope' not found" in printed
    assert only_record(tmp_path / "outputs")["seed"] == 21
    assert not [*tmp_path.glob("x*")]
    assert not [*tmp_path.rglob(".refused")]


def test_a_folder_with_the_record_of_another_run_is_refused(tmp_path: Path) -> None:
    shared = ("trainer.max_epochs=1", f"hydra.run.dir={tmp_path}/shared")
    assert command_line(tmp_path / "outputs", *QUICK, *shared)[0] == 0
    status, printed = command_line(tmp_path / "outputs", *QUICK, *shared, "seed=42")
    assert status == 1
    assert "another run has its record there" in printed
    assert only_record(tmp_path)["seed"] == 21


def test_parameters_that_are_no_longer_numbers_are_a_training_that_diverged(tmp_path: Path) -> None:
    status, printed = command_line(tmp_path / "outputs", *QUICK, "optimizer.learning_rate=1e38")
    assert status == 1
    assert "diverged; a lower optimizer.learning_rate may help" in printed
    assert "Traceback" not in printed


OWN = """
import lightning, sharmix, torch, torchmetrics
from experiments.data.digits import DigitsDataModule

class Built(sharmix.Softmax):
    def __init__(self):
        super().__init__()
        {}["built"]

class Applied(sharmix.Softmax):
    def probabilities(self, logits):
        return logits + torch.zeros(3, 3, 3)

class Trained(sharmix.Softmax):
    def loss(self, *arguments, **options):
        raise RuntimeError("no loss")

class Network(torch.nn.Linear):
    def __init__(self, num_classes):
        super().__init__(64, num_classes)
    def forward(self, inputs):
        return inputs.nothing if self.training else super().forward(inputs)

class Called(lightning.pytorch.Callback):
    def on_train_epoch_start(self, *arguments):
        raise KeyError("called")

class Metric(torchmetrics.classification.MulticlassAccuracy):
    def update(self, *arguments):
        raise KeyError("metric")

class Data(DigitsDataModule):
    def load(self):
        raise KeyError("data")
"""
FAILING = {
    ("activation.name=failing.Built",): "activation.name=failing.Built has failed: KeyError",
    ("activation.name=failing.Applied",): "activation.name=failing.Applied has failed: RuntimeError",
    ("activation.name=failing.Trained",): "activation.name=failing.Trained has failed: RuntimeError",
    ("model._target_=failing.Network", "~model.hidden_units"): "model._target_=failing.Network has failed: Attribute",
    ("+callbacks.own={_target_: failing.Called}",): "callbacks.own._target_=failing.Called has failed: KeyError",
    ("+module.metrics.own={_target_: failing.Metric, _partial_: true}",): "module.metrics.own._target_=failing.Metric",
    ("data._target_=failing.Data",): "data._target_=failing.Data has failed: KeyError: 'data'",
}


def test_code_of_the_users_own_that_fails_is_named_before_its_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "failing.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    with every_case() as case:
        for arguments, words in FAILING.items():
            with case(arguments=arguments):
                custom = ["activation=custom"] if arguments[0].startswith("activation") else []
                status, printed = command_line(tmp_path / "outputs", "experiment=digits", *custom, *arguments)
                assert status == 1
                named, traceback, raised = printed.partition("Traceback")
                assert words in named
                assert traceback, printed
                assert raised.splitlines()[1].startswith(f'  File "{tmp_path}/failing.py"'), raised
    sys.modules.pop("failing", None)
    assert not records(tmp_path / "outputs")
