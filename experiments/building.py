"""Builds what the settings of a run name: data, network, activation and module."""

import inspect
import json
from collections.abc import Sequence
from typing import Any

import lightning.pytorch as L
import torch
from torch import nn

from experiments.data.base import SplitDataModule
from experiments.errors import ConfigurationError, DataError
from experiments.modules.base import OutputModule
from experiments.modules.classifier import Classifier
from experiments.settings import Group, RunSettings, build, build_activation, check_values, get_class_or_function

_loaded: dict[str, Any] = {}  # the data that this process has loaded last; the runs of a sweep share them


def build_module_and_data(settings: RunSettings) -> tuple[OutputModule, SplitDataModule]:
    """The loaded data, and the network under its output activation, initialised by the seed.

    What needs no data is built before they are read.

    Raises:
        ConfigurationError: there is no such class, a value is not allowed, or parts do not fit together.
        DataError: the data cannot be used.
    """
    for key in ("model", "module"):
        check_values(getattr(settings, key), key)
    L.seed_everything(settings.seed, verbose=False)  # the user's activation may draw its parameters
    activation = build_activation(settings.activation)
    optimizer = build(settings.optimizer, "optimizer")
    data = build(settings.data, "data", SplitDataModule)
    _check_monitors(settings.callbacks, data.evaluated)
    _load(data, settings)
    L.seed_everything(settings.seed, verbose=False)
    network = build(settings.model, "model", nn.Module, **_sizes(settings.model, data))
    arguments = {"network": network, "activation": activation, "optimizer": optimizer, **data.module_arguments()}
    module = build(settings.module, "module", OutputModule, **arguments)
    if isinstance(module, Classifier):
        module.check(data.data.test.read(torch.arange(1), torch.zeros(1, dtype=torch.int64))[0])
    return module, data


def _load(data: SplitDataModule, settings: RunSettings) -> None:
    """Load the data, unless this process has loaded them for the run before."""
    key = json.dumps(settings.data if data.drawn_by_seed else settings.data | {"seed": None}, sort_keys=True)
    if key not in _loaded:
        try:
            data.setup()
        except OSError as error:  # the user's data set may raise it
            raise DataError(f"data: {type(data).__name__} cannot be loaded: {error}") from error
        _loaded.clear()  # otherwise the data sets of a sweep would pile up
        _loaded[key] = data.data
    data.data = _loaded[key]


def _sizes(model: Group, data: SplitDataModule) -> dict[str, int]:
    """The sizes of the data that the network's class has arguments for."""
    parameters = inspect.signature(get_class_or_function(model, "model")).parameters
    further = {"num_classes"} if any(one.kind is one.VAR_KEYWORD for one in parameters.values()) else set()
    return {name: int(size) for name, size in data.network_arguments().items() if name in {*parameters, *further}}


def _check_monitors(callbacks: dict[str, Any], evaluated: Sequence[str]) -> None:
    """Raise a ConfigurationError if a callback watches the test split, or a split that is not measured."""
    measured = ("train", *(split for split in evaluated if split not in ("train", "test")))
    for name, group in callbacks.items():
        monitor = (group or {}).get("monitor") or ""
        if not isinstance(monitor, str):
            raise ConfigurationError(
                f"callbacks.{name}.monitor={monitor} is not allowed; it is a text such as validation/loss"
            )
        if "/" in monitor and monitor.partition("/")[0] not in measured:
            raise ConfigurationError(
                f"callbacks.{name}.monitor={monitor} is not allowed; nothing is chosen on the test split, and this run "
                f"measures {' and '.join(measured)}; data.validation_fraction=SHARE gives classes a validation part"
            )
