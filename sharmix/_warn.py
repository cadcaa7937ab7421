"""Warnings that name a line of the user, not one of this library or of those that call it."""

import sys
import warnings

_NOT_THE_USER = "joblib", "sharmix", "sklearn", "torch"  # packages


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """As `warnings.warn`. The warning names the innermost line outside of this library, torch and scikit-learn."""
    level, frame = 1, sys._getframe()
    # A frame without a name is code that torch.compile wrote.
    while frame.f_back and frame.f_globals.get("__name__", "torch").partition(".")[0] in _NOT_THE_USER:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
