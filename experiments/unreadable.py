"""Counting the examples that cannot be read: a warning for each, an error where they are too many."""

import logging
from collections.abc import Iterable

import torch.distributed
from lightning.fabric import Fabric

from experiments.errors import DataError

_log = logging.getLogger(__name__)


class Unreadable:
    """The examples of a run that could not be read so far.

    Args:
        most: how many there may be.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.names: set[str] = set()

    def add(self, names: Iterable[str]) -> None:
        """Count more of them; the same one counts once.

        Raises:
            DataError: they are more than there may be.
        """
        for name in names:
            if name not in self.names:
                self.names.add(name)
                _log.warning("left out, as number %d that cannot be read: %s", len(self.names), name)
        if len(self.names) > self.most:
            raise DataError(f"{self}; restore these files, or allow more with data.unreadable_share")

    def gather(self, fabric: Fabric) -> None:
        """Count those of all processes together; every process calls it, and raises as `add` does."""
        if fabric.world_size > 1:
            gathered: list[set[str]] = [set()] * fabric.world_size
            torch.distributed.all_gather_object(gathered, self.names)
            self.names = set().union(*gathered)
            self.add(())

    def state_dict(self) -> dict[str, list[str]]:
        return {"names": sorted(self.names)}

    def load_state_dict(self, state: dict[str, list[str]]) -> None:
        self.names = set(state["names"])

    def __str__(self) -> str:
        shown = "\n  ".join(sorted(self.names)[:10])
        return f"{len(self.names)} examples cannot be read, {self.most} are allowed:\n  {shown}"
