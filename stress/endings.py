"""The end of a process in the middle of its files: by a signal, or by a disk that is full from then on."""

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
class AtOperation:
    """Ends the process, in which it is called before the work begins, at one of its file operations.

    The operations are those that change files: opening for writing, renaming, removing and the like.

    Attributes:
        folder: the operations below it are counted.
        number: of the operation; None prints `OPERATION` for each.
        by: ends the process. SIGXFSZ does so where a file grows beyond `size`, any other before the operation; without
            a signal the process is told that the disk is full.
        size: the bytes to which files can grow from then on.
    """

    folder: Path
    number: int | None
    by: signal.Signals | None = signal.SIGKILL
    size: int | None = None

    def __call__(self) -> None:
        counted, place = count(1), str(self.folder)
        if self.by == signal.SIGXFSZ:
            signal.signal(self.by, signal.SIG_DFL)  # Python ignores it

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            if event not in _OPERATIONS or (event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR)):
                return
            if any(str(os.fsdecode(one)).startswith(place) for one in arguments[:2] if isinstance(one, str | Path)):
                number = next(counted)
                if self.number is None:
                    os.write(2, OPERATION.encode())
                elif self.number == number:
                    self._end()

        sys.addaudithook(hook)

    def _end(self) -> None:
        if self.size is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.size, resource.RLIM_INFINITY))
        elif self.by is not None:
            os.kill(os.getpid(), self.by)
