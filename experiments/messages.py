"""What a command prints when it cannot go on: one line for a mistake of the user's or an interrupt, no traceback."""

import difflib
import errno
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from hydra.errors import HydraException, OverrideParseException
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException
from yaml import YAMLError

from experiments.errors import UserError

STARTS_AGAIN = "the same command starts again where this one did"
FAILED_RUNS = "the runs named above have failed"
_ADVICE = ", set env var HYDRA_FULL_ERROR=1 to see chained exception"  # of Hydra; `one_message` has set it
_SEVERAL = re.compile(r"Ambiguous value for argument '(.*)'")
_NO_SETTING = re.compile(r"Error parsing override '([\w/.-]+)'\nmissing EQUAL")
_FROM_HOME = re.compile(r"([\w/.+-]+)=~(/[\w/.-]*)")
_QUOTABLE = re.compile(r"([\w/.+-]+)=([^'\"~]+)")
_CLOSED = re.compile(r"Could not override '(\w+|(activation|optimizer|paths|trainer)\.\w+)'")  # + adds nothing there
_NO_OPTION = re.compile(r"Could not find '(\w+)/(\w+)'.*Available options in '\w+':([^']*)")
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.ENOTDIR)


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
    except Exception as error:
        message = message_of(error)
        if message is None:
            raise
        sys.exit(FAILED_RUNS if getattr(error, "is_of_run", False) else message)


def replace_unknown_characters() -> None:
    """Print ? for a character that the terminal does not know, where Python would raise an error."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def message_of(error: BaseException) -> str | None:
    """What the user reads of an error of settings, files or records; None for a bug, which shows its traceback."""
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, OSError) and error.errno in DISK_ERRORS:
        return f"{error.filename or 'the outputs'}: {error.strerror}; give another folder with paths.outputs=FOLDER"
    if isinstance(error, HydraException | OmegaConfBaseException | YAMLError):
        return _message_of_hydra(error)
    return None


def _message_of_hydra(error: Exception) -> str:
    """Hydra's message without its remarks on itself, with the cause that it leaves out and the names that it allows."""
    key_error = error.__cause__ if isinstance(error.__cause__, OmegaConfBaseException) else error
    own, cause = (re.split(r"\n *(?:full_key|Config search path)", str(one))[0].strip() for one in (error, key_error))
    lines = own.replace(":\n\t", ": ").replace("\n\t", ", ").replace(_ADVICE, "").splitlines()
    if _CLOSED.match(own):
        lines = [line for line in lines if not line.startswith("To append to your config")]
    if found := _SEVERAL.match(own):
        return f"{found[1]}: several values; add -m to run each, or write [VALUE,VALUE] where a list is allowed"
    if found := _NO_SETTING.match(own):
        return f"{found[1]} is no setting; a setting is NAME=VALUE, such as experiment={found[1]}"
    if found := _NO_OPTION.search(" ".join(lines)):
        group, name, names = found.groups()
        close = difflib.get_close_matches(name, re.split(r"[\s,]+", names.strip()), n=1)
        lines[0] += f"; did you mean {group}={close[0]}?" if close else ""
    if isinstance(error, OverrideParseException):
        if error.override not in own:
            lines.insert(0, f"Error parsing override '{error.override}'")
        lines[-1:-1] = _how_to_write(error.override)
    if isinstance(key_error, ConfigAttributeError | ConfigKeyError) and key_error.parent_node is not None:
        known = {str(key).lower(): str(key) for key in key_error.parent_node}
        found = difflib.get_close_matches(str(key_error.key).lower(), known, n=1)
        meant = f"Did you mean {known[found[0]]}? " if found else ""
        if known:
            lines.insert(1, f"{meant}Allowed: {', '.join(known.values())}")
    elif cause not in own or not own:
        lines.append(cause)
    if isinstance(key_error, OmegaConfBaseException) and (key := key_error.full_key) and key not in own:
        lines[0] = f"{key}: {lines[0]}"
    if any("hydra/launcher" in line for line in lines):
        lines.append("Others come with pip install '.[slurm]' or '.[ray]'")
    return "\n".join(lines)


def _how_to_write(override: str) -> list[str]:
    """A line of advice on an override that Hydra cannot parse, if there is one."""
    if found := _FROM_HOME.fullmatch(override):
        return [f"For ~ write {found[1]}=$HOME{found[2]}"]
    if found := _QUOTABLE.fullmatch(override):
        return [f"If the value is meant so, put quotes within quotes: \"{found[1]}='{found[2]}'\""]
    return []
