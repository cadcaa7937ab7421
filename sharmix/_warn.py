"""Warnings that name the user's line, whatever this library and torch put around the call."""

import sys
import warnings

_NOT_THE_USER = "sharmix", "torch"  # packages


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """As `warnings.warn`, for the last line before this library and torch: the user's."""
    level, frame = 1, sys._getframe()
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in _NOT_THE_USER:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
