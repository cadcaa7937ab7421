"""Errors that the person at the keyboard can mend: shown as one message, without a traceback."""

from hydra.errors import CompactHydraException


class UserError(CompactHydraException, ValueError):
    """Says what is wrong, where it came from and what to do about it."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message.encode(errors="backslashreplace").decode())  # names of files need not be UTF-8


class ConfigurationError(UserError):
    """A setting that cannot be used: names its key, its value and what is allowed."""


class DivergedError(UserError):
    """A training whose loss is no longer a number: names the epoch and the remedy."""


class MachineError(UserError):
    """A disk, a memory or a right that a run lacks: names the path and the remedy."""


class DataError(UserError):
    """A data set that cannot be used: names the file and line, what is wrong, and the remedy."""
