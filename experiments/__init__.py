"""The suite of experiments. `load_run` loads a finished run, to predict with it in Python."""

from importlib import import_module
from typing import Any

__all__ = ["load_run"]


def __getattr__(name: str) -> Any:
    # Not an import statement: every module that this file imports would count as code of every run.
    if name == "load_run":
        return import_module("experiments.run").load_run
    raise AttributeError(f"module {__name__} has no attribute {name}")
