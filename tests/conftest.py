"""Settings of every test: one thread and fixed random examples, so that a failing test fails again on the next run."""

import atexit
import gc

import hypothesis
import pytest
import torch

torch.set_num_threads(1)

hypothesis.settings.register_profile("deterministic", derandomize=True, deadline=None, database=None, max_examples=50)
hypothesis.settings.load_profile("deterministic")


def pytest_collection_finish(session: pytest.Session) -> None:
    """What the imports have left is there to stay: no later collection of garbage need look through it."""
    gc.collect()
    gc.freeze()
    atexit.register(gc.unfreeze)  # else Triton warns of leaks


@pytest.fixture(scope="module")  # not longer: while it lives, no other test of the process can start an event loop
def browser():
    """Chromium, for the tests of a module; they are skipped where there is none. See tests/browser.py."""
    from tests.browser import chromium  # which the sdist lacks

    with chromium() as started:
        yield started
