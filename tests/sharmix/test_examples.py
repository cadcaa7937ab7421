"""The docstring of every public name has an example, which runs, and of every module and criterion its shapes."""

import doctest
import inspect
import re

import pytest
import torch

import sharmix
from sharmix import conformal, parallel, registry

PUBLIC = {name: getattr(sharmix, name) for name in sharmix.__all__}
MODULES = [name for name, value in PUBLIC.items() if inspect.isclass(value)]
EXAMPLES = PUBLIC | {name: getattr(module, name) for module in (conformal, parallel) for name in module.__all__}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.medium) if name == "export_decompositions" else name
        for name in sorted(EXAMPLES)
    ],
)
def test_the_example_of(name, monkeypatch):
    monkeypatch.setattr(registry, "_ACTIVATIONS", dict(registry._ACTIVATIONS))  # one example registers a class
    globs = {"torch": torch, "sharmix": sharmix}
    (example,) = doctest.DocTestFinder(recurse=False).find(EXAMPLES[name], name, globs=globs)
    assert example.examples
    assert doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.REPORT_NDIFF).run(example).failed == 0


@pytest.mark.parametrize("name", MODULES)
def test_the_shapes_of(name):
    assert re.search(r"\n\nShape:\n    \w+ \(", inspect.getdoc(PUBLIC[name]))


@pytest.mark.parametrize(("name", "way"), [("SharMiX", "rise"), ("Entmax", "rises"), ("Normmax", "falls")])
def test_the_first_lines_say_which_way_the_loss_moves_what_is_learned(name, way):
    for documented in (PUBLIC[name], PUBLIC[f"{name}Loss"]):
        beginning = inspect.getdoc(documented).split("Args:")[0]
        assert re.search(rf"class indices.* learned .*{way}.* whatever the\sdata", beginning)

    act = PUBLIC[name](learned=True)
    act.loss(torch.randn(8, 5, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 5).backward()
    assert {parameter.grad.sign().item() for parameter in act.parameters()} == {1 if way == "falls" else -1}
