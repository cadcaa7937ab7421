"""Imports torch, torchmetrics and Lightning in two thirds of the processor time; to be imported before any of them.

torchmetrics imports matplotlib, scipy, torchvision and transformers wherever they are installed, for plots, sounds,
images and language models. While it is imported here they look absent. Afterwards they import as ever; only
torchmetrics goes on without them, and says so where asked for what needs them. And the garbage collector, which finds
nothing among modules, leaves them alone.
"""

import atexit
import gc
import sys
from importlib import import_module
from importlib.metadata import Distribution, PackageNotFoundError


def _import_without(package: str, spared: set[str]) -> None:
    """As if the spared packages were not installed; what fails without them is left to an ordinary import."""
    before, find = set(sys.modules), Distribution.__dict__["from_name"]

    def from_name(kind: type[Distribution], name: str) -> Distribution:
        if name in spared - before:
            raise PackageNotFoundError(name)
        return find.__get__(None, kind)(name)

    Distribution.from_name = classmethod(from_name)  # which tells torchmetrics what is installed
    sys.modules.update(dict.fromkeys(spared - before))  # None: not to be imported
    try:
        import_module(package)
    except Exception:
        spared = spared | {name for name in sys.modules if name.partition(".")[0] == package}
    finally:
        Distribution.from_name = find
        for name in spared - before:
            sys.modules.pop(name, None)


gc.disable()
import_module("torch")
_import_without("torchmetrics", {"matplotlib", "scipy", "torchvision", "transformers"})
import_module("lightning.pytorch")
gc.freeze()
gc.enable()
atexit.register(gc.unfreeze)  # else Triton warns of leaks
