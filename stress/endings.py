"""Ways in which a process ends itself in the middle of its files; each is called in the process before it begins."""

import os
import resource
import signal
import sys
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

OPERATION = "file operation\n"  # what is printed for each, where they are counted
_OPERATIONS = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.link", "os.truncate")


@dataclass(frozen=True)
class BeforeOperation:
    """Ends the process by a signal before it does the file operation of this number below a folder; None: counts all.

    The operations are those that change files: opening for writing, renaming, removing and the like.
    """

    folder: Path
    number: int | None
    by: signal.Signals = signal.SIGKILL

    def __call__(self) -> None:
        counted, place = count(1), str(self.folder)

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            if event not in _OPERATIONS or (event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR)):
                return
            if any(str(os.fsdecode(one)).startswith(place) for one in arguments[:2] if isinstance(one, str | Path)):
                number = next(counted)
                if self.number is None:
                    os.write(2, OPERATION.encode())
                if self.number == number:
                    os.kill(os.getpid(), self.by)

        sys.addaudithook(hook)


@dataclass(frozen=True)
class AfterBytes:
    """Lets no file grow beyond so many bytes: the system kills the process there, or tells it that the disk is full."""

    size: int
    kills: bool

    def __call__(self) -> None:
        if self.kills:
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.size, resource.RLIM_INFINITY))
