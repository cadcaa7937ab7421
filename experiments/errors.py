"""Errors that the user can correct: they are shown as one message, without a traceback."""

from collections.abc import Iterator
from contextlib import contextmanager

from hydra.errors import CompactHydraException


class UserError(CompactHydraException, ValueError):
    """An error for the user. The message names the mistake, its place and the remedy."""


class ConfigurationError(UserError):
    """A setting that cannot be used. The message names its key, its value and the allowed values."""


class DivergedError(UserError):
    """A training whose loss is no longer a number. The message names the epoch and the remedy."""


class DataError(UserError):
    """A data set that cannot be used. The message names the file and line, the mistake, and the remedy."""


@contextmanager
def reading(place: object, remedy: str, kinds: tuple[type[Exception], ...] = (Exception,)) -> Iterator[None]:
    """Turn an error into a DataError that names the place that is read and the remedy.

    By default that is any error: libraries that read or download files raise kinds that share no base class.
    """
    try:
        yield
    except kinds as error:
        raise DataError(f"{place}: cannot be read ({error}); {remedy}") from error
