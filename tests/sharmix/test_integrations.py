"""What all integrations share: examples that run, and an error that says what to install."""

import doctest
import importlib
import sys

import pytest
import torch

NEEDED = {
    "sklearn": ("sklearn", r"pip install 'sharmix\[sklearn\]'"),
    "transformers": ("transformers", r"pip install 'sharmix\[transformers\]'"),
}
pytestmark = [pytest.mark.medium, pytest.mark.parametrize("name", NEEDED)]  # imports the packages: seconds


def test_every_public_name_has_an_example_that_runs(name):
    pytest.importorskip(NEEDED[name][0])
    module = importlib.import_module(f"sharmix.integrations.{name}")
    for public in module.__all__:
        globs = vars(module) | {"torch": torch}
        (example,) = doctest.DocTestFinder(recurse=False).find(getattr(module, public), public, globs=globs)
        assert example.examples
        assert doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.REPORT_NDIFF).run(example).failed == 0


def test_without_its_package_it_says_what_to_install(name, monkeypatch):
    package, advice = NEEDED[name]
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"sharmix.integrations.{name}", raising=False)
    with pytest.raises(ImportError, match=advice):
        importlib.import_module(f"sharmix.integrations.{name}")
