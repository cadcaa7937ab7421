"""Counts the examples that cannot be read: a warning for each, an error if there are too many."""

import logging
from collections.abc import Iterable

import torch.distributed

from experiments.errors import DataError

_log = logging.getLogger(__name__)


class Unreadable:
    """The names of the examples that a run could not read so far; at most `most` are allowed."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.names: set[str] = set()

    def add(self, names: Iterable[str]) -> None:
        """Count names of examples, each once.

        Raises:
            DataError: there are more than `most`.
        """
        for name in names:
            if name not in self.names:
                self.names.add(name)
                _log.warning("left out, as number %d that cannot be read: %s", len(self.names), name)
        if len(self.names) > self.most:
            shown = "\n  ".join(sorted(self.names)[:10])
            raise DataError(
                f"{len(self.names)} examples cannot be read, {self.most} are allowed:\n  {shown}; restore these files, "
                "or allow more with data.unreadable_share"
            )

    def gather(self) -> None:
        """Count the names of all processes together. Every process must call it; raises as `add`."""
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            gathered: list[set[str]] = [set()] * torch.distributed.get_world_size()
            torch.distributed.all_gather_object(gathered, self.names)
            self.names = set().union(*gathered)
            self.add(())
