"""Builds what the settings of a run name: data, network, activation and module."""

import inspect
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning.pytorch as L
import torch

from experiments.data.base import SplitDataModule
from experiments.errors import ConfigurationError, DataError
from experiments.modules.base import OutputModule
from experiments.modules.classifier import Classifier
from experiments.run_folder import locked
from experiments.settings import Group, RunSettings, build, build_activation, check_values, get_class_or_function

_loaded: dict[str, Any] = {}  # the data that this process has loaded last; the runs of a sweep share them


def build_data(settings: RunSettings, say: Callable[[str], object]) -> SplitDataModule:
    """The data, loaded. Settings that are wrong by themselves raise an error before the data are read.

    Args:
        settings: of the run.
        say: gets a line if this process has to wait for another one that loads data.

    Raises:
        ConfigurationError: a setting is wrong.
        DataError: the data cannot be used.
    """
    build_activation(settings.activation)
    build(settings.optimizer, "optimizer")
    for key in ("model", "module"):
        check_values(getattr(settings, key), key)
    data = build(settings.data, "data")
    if not isinstance(data, SplitDataModule):
        raise ConfigurationError(f"data: {type(data).__name__} must be a SplitDataModule of experiments/data/base.py")
    key = json.dumps(settings.data if data.drawn_by_seed else settings.data | {"seed": None}, sort_keys=True)
    data.data = _loaded.get(key)
    if data.data is None:
        _load(data, say)
        _loaded.clear()  # otherwise the data sets of a sweep would pile up
        _loaded[key] = data.data
    return data


def _load(data: SplitDataModule, say: Callable[[str], object]) -> None:
    """Load the data. One process of this user at a time does it, so that one downloads."""
    lock = Path(tempfile.gettempdir(), f"sharmix-data-{os.getuid()}.lock")
    try:
        with locked(lock, lambda holder: say(f"waits for {holder}, which holds {lock} and may be loading data")):
            data.setup()
    except OSError as error:  # the user's data set may raise it
        raise DataError(f"data: {type(data).__name__} cannot be loaded: {error}") from error


def build_module(settings: RunSettings, data: SplitDataModule) -> OutputModule:
    """The network under its output activation, initialised by the seed; a ConfigurationError if they do not fit."""
    L.seed_everything(settings.seed, verbose=False)  # the user's activation may draw its parameters
    activation = build_activation(settings.activation)
    optimizer = build(settings.optimizer, "optimizer")
    L.seed_everything(settings.seed, verbose=False)
    network = build(settings.model, "model", **_sizes(settings.model, data))
    arguments = data.module_arguments()
    module = build(settings.module, "module", network=network, activation=activation, optimizer=optimizer, **arguments)
    if isinstance(module, Classifier):
        module.check(data.data.test.read(torch.arange(1), torch.zeros(1, dtype=torch.int64))[0])
    return module


def _sizes(model: Group, data: SplitDataModule) -> dict[str, int]:
    """The sizes of the data that are arguments of the network."""
    parameters = inspect.signature(get_class_or_function(model, "model")).parameters.values()
    named = {one.name for one in parameters if one.kind in (one.KEYWORD_ONLY, one.POSITIONAL_OR_KEYWORD)}
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        named.add("num_classes")
    return {name: int(size) for name, size in data.network_arguments().items() if name in named}
