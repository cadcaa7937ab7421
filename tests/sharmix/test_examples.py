"""Every public name has an example in its docstring, and it runs."""

import doctest

import pytest
import torch

import sharmix
from sharmix import registry

PUBLIC = {name: getattr(sharmix, name) for name in sharmix.__all__}
IN_PROSE = {"Activation"}  # whose example is a class of one's own, in README.md


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_the_example_of(name, monkeypatch):
    monkeypatch.setattr(registry, "_ACTIVATIONS", dict(registry._ACTIVATIONS))  # one example registers a class
    examples = doctest.DocTestFinder(recurse=False).find(PUBLIC[name], name, globs={"torch": torch, "sharmix": sharmix})
    count = sum(len(example.examples) for example in examples)
    assert count or name in IN_PROSE, f"sharmix.{name} has no example"
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.REPORT_NDIFF)
    for example in examples:
        runner.run(example)
    assert runner.summarize(verbose=False).failed == 0
