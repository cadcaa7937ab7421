"""Imports torchmetrics in less time; import it before Lightning, which imports torchmetrics.

torchmetrics imports matplotlib, scipy, torchvision and transformers wherever they are installed, for plots, sounds,
images and language models. During its import here these packages look absent. Afterwards they can be imported as usual;
only torchmetrics continues without them and raises an error for a feature that needs them.

Importing `experiments.run` takes 8 seconds of processor time with this module and 14 without it: medians of five
processes each, in turn, on two busy cores, torch 2.15 and torchmetrics 1.9, 2026-11-27.
"""

import sys
from importlib import import_module
from importlib.metadata import Distribution, PackageNotFoundError


def _import_without(package: str, spared: set[str]) -> None:
    """Import a package as if those of the spared packages that are not yet imported were not installed."""
    absent, find = spared - set(sys.modules), Distribution.__dict__["from_name"]

    def from_name(kind: type[Distribution], name: str) -> Distribution:
        if name in absent:
            raise PackageNotFoundError(name)
        return find.__get__(None, kind)(name)

    Distribution.from_name = classmethod(from_name)  # torchmetrics uses it to find installed packages
    sys.modules.update(dict.fromkeys(absent))  # None blocks the import
    try:
        import_module(package)
    finally:
        Distribution.from_name = find
        for name in absent:
            del sys.modules[name]


_import_without("torchmetrics", {"matplotlib", "scipy", "torchvision", "transformers"})
