"""What a command prints when it cannot go on: one line for a mistake of the user's or an interrupt, no traceback."""

import difflib
import errno
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from hydra.errors import CompactHydraException
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException
from yaml import YAMLError

from experiments.errors import UserError

STARTS_AGAIN = "the same command starts again where this one did"
FAILED_RUNS = "the runs named above have failed"
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.ENOTDIR)
REFUSALS = (CompactHydraException, OmegaConfBaseException, YAMLError)  # of the suite and of Hydra


class Interrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM in the middle of a run; the message says how the run goes on."""


@contextmanager
def one_message() -> Iterator[None]:
    """Print one line for an error that the user can correct, or for an interrupt, and exit; raise any other error.

    The status is 1 for an error, 130 for Ctrl-C and 143 for SIGTERM.
    """
    status = 128 + signal.SIGINT

    def terminate(number: int, frame: FrameType | None) -> NoReturn:
        nonlocal status
        status = 128 + number
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, terminate)
    replace_unknown_characters()
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises its errors, in place of printing them
    try:
        yield
    except KeyboardInterrupt as interrupt:
        if text := str(interrupt) if isinstance(interrupt, Interrupted) else STARTS_AGAIN:
            print(f"interrupted; {text}", file=sys.stderr)
        sys.exit(status)
    except REFUSALS as error:
        sys.exit(FAILED_RUNS if getattr(error, "is_printed", False) else message_of(error))
    except OSError as error:
        if error.errno not in DISK_ERRORS:
            raise
        sys.exit(f"{error.filename or 'the outputs'}: {error.strerror}; give another folder with paths.outputs=FOLDER")


def replace_unknown_characters() -> None:
    """Print ? for a character that the terminal does not know, where Python would raise an error."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def message_of(error: Exception) -> str:
    """What the user reads of a refusal: Hydra's without its remarks on itself, and with the names that are allowed."""
    if isinstance(error, UserError):
        return str(error)
    lines = str(error).partition("\n    full_key")[0].partition("\nConfig search path")[0].strip().splitlines()
    key_error = error.__cause__ if isinstance(error.__cause__, OmegaConfBaseException) else error
    if isinstance(key_error, ConfigAttributeError | ConfigKeyError) and key_error.parent_node is not None:
        known = {str(key).lower(): str(key) for key in key_error.parent_node}
        found = difflib.get_close_matches(str(key_error.key).lower(), known, n=1)
        meant = f"Did you mean {known[found[0]]}? " if found else ""
        lines.insert(1, f"{meant}Allowed: {', '.join(known.values())}")
    if any("hydra/launcher" in line for line in lines):
        lines.append("Others come with pip install '.[slurm]' or '.[ray]'")
    return "\n".join(lines)
