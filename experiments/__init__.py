"""The suite: `load_run` gives a finished run, ready to predict; `run.py` and `predict.py` are its command lines."""

from importlib import import_module
from typing import Any

__all__ = ["load_run"]


def __getattr__(name: str) -> Any:
    # Not an import statement: what this file imports counts as code of every run.
    if name == "load_run":
        return import_module("experiments.loading").load_run
    raise AttributeError(f"module {__name__} has no attribute {name}")
