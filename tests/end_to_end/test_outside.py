"""Data sets, networks, metrics, activations and callbacks from a folder outside: the recipes of docs/how_to."""

import os
import runpy
import subprocess
import sys

import pytest
import torch

from experiments.identity import ROOT
from reporting.__main__ import main as reporting
from tests.end_to_end.recipes import recipes, refusal, without_numbers
from tests.end_to_end.runner import command_line, only_record, succeed

RECIPES = recipes()
TOGETHER, LOADED = "All of it in one experiment", "A finished run in your own code"
ALONE = [name for name in RECIPES if name not in (TOGETHER, LOADED)]


@pytest.fixture(scope="module")
def outside(tmp_path_factory):
    """A folder with the files of all recipes."""
    folder = tmp_path_factory.mktemp("outside")
    for recipe in RECIPES.values():
        write(folder, recipe.files)
    return folder


def write(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.fixture(autouse=True)
def modules_as_before(tmp_path_factory):
    """Each test imports the modules of its own folder."""
    yield
    folder = f"{tmp_path_factory.getbasetemp()}/"
    for name, module in [*sys.modules.items()]:
        if str(getattr(module, "__file__", "")).startswith(folder):
            del sys.modules[name]


def test_there_is_a_recipe_for_each_part_that_can_be_yours():
    parts = {file.split("/")[1] for recipe in RECIPES.values() for file in recipe.files if file.startswith("conf/")}
    assert parts == {"activation", "callbacks", "data", "experiment", "metrics", "model"}
    assert len(RECIPES) == 9


@pytest.mark.medium
@pytest.mark.parametrize("name", ALONE)
def test_a_recipe_runs_by_its_own_files_and_prints_what_it_says(name, tmp_path):
    recipe = RECIPES[name]
    write(tmp_path, recipe.files)
    printed = succeed(tmp_path / "outputs", *recipe.arguments)
    assert without_numbers(printed, tmp_path) == without_numbers(recipe.printed, tmp_path)


@pytest.mark.medium
def test_the_recipes_make_one_experiment_whose_run_can_be_loaded(outside, monkeypatch, capsys):
    recipe = RECIPES[TOGETHER]
    command = [sys.executable, str(ROOT / "run.py"), *recipe.arguments]
    environment = os.environ | {"NO_COLOR": "1"}
    done = subprocess.run(command, cwd=outside, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert without_numbers(done.stdout, outside) == without_numbers(recipe.printed, outside)

    record = only_record(outside / "outputs" / "mine")
    for split in ("train", "test"):
        assert 0 <= record["metrics"][split]["accuracy"] <= record["metrics"][split]["top_two"] <= 1
    assert record["metrics"]["train"]["weight_norm"] == record["curves"][-1]["train/weight_norm"] > 0
    assert [row["epoch"] for row in record["curves"]] == [1, 2, 3]
    assert record["config"]["activation"]["name"] == "tempered.TemperedSparsemax"

    monkeypatch.chdir(outside)
    monkeypatch.syspath_prepend(outside)
    runpy.run_path("use.py")
    assert without_numbers(capsys.readouterr().out, outside) == without_numbers(RECIPES[LOADED].printed, outside)

    monkeypatch.setenv("COLUMNS", "120")
    reporting(["summary", "mine"])
    summary = capsys.readouterr().out
    assert "TemperedSparse" in summary


def test_the_loss_of_the_activation_has_the_gradient_p_minus_y(outside):
    activation = runpy.run_path(str(outside / "tempered.py"))["TemperedSparsemax"](2.0)
    z = torch.tensor([[1.0, 0.5, -3.0]], dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(activation.loss(z, torch.tensor([1])), z)
    torch.testing.assert_close(gradient, activation(z) - torch.eye(3)[1])


OWN = """
import torch
from torch import nn
from torchmetrics.classification import MulticlassRecall

class Linear(nn.Linear):
    def __init__(self, num_classes):
        super().__init__(64, num_classes)

class Recalls(MulticlassRecall):
    def __init__(self, num_classes):
        super().__init__(num_classes, average="none")

class Even(Linear):
    def __init__(self, num_classes, width):
        raise ValueError(f"width={width} is odd")
"""


@pytest.mark.medium
@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model._target_=own.Even", "+model.width=3"], "model: own.Even cannot be built: width=3 is odd"),
        (
            ["data=flowers", "data.file=gone.csv"],
            "data: Flowers cannot be loaded: [Errno 2] No such file or directory:",
        ),
        (
            ["data={_target_: lightning.LightningDataModule}"],
            "data: LightningDataModule must be a SplitDataModule of experiments.data.base",
        ),
        (
            ["+module.metrics.accuracy={_target_: own.Recalls, _partial_: true}"],
            "module.metrics.accuracy is not allowed; give a name that is not measured already (accuracy, macro_f1, ",
        ),
    ],
)
def test_a_part_that_does_not_fit_is_one_clear_error(outside, overrides, message):
    (outside / "own.py").write_text(OWN)
    own = [] if overrides[0].startswith(("data", "+")) else ["~model.hidden_units"]
    command = "--config-dir", "conf", *overrides, *own, "trainer.max_epochs=1"
    assert refusal(*command_line(outside / "outputs", *command)).startswith(message)
