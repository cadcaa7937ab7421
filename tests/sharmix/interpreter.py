"""Triton's interpreter, which runs kernels on the CPU where `TRITON_INTERPRET` is 1 before Triton is imported."""

import os

import pytest
from triton.language import core
from triton.runtime import interpreter

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


@pytest.fixture(autouse=True, scope="module")
def patch_the_language_once_a_launch():
    """The interpreter patches Triton's language again at each call of a function of a kernel: half of its time."""
    patch_lang = interpreter._patch_lang

    def patch_unless_patched(function):
        languages = (interpreter.tl, core)
        return patch_lang(function) if any(core.is_builtin(language.load) for language in languages) else None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter, "_patch_lang", patch_unless_patched)
        yield
