"""Folders of made-up results, and the project's own. Those of a session are built once and never changed."""

from pathlib import Path

import pytest

from reporting.records.kept_runs import KeptRuns
from tests.reporting.synthetic_results import RESULTS, rebuild, write_short, write_small


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A small declaration with complete records."""
    return write_small(tmp_path)


@pytest.fixture
def short(tmp_path: Path) -> Path:
    """Runs that end after four of six epochs, and another experiment."""
    return write_short(tmp_path)


@pytest.fixture(scope="session")
def built_short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The short runs with their tables."""
    return rebuild(write_short(tmp_path_factory.mktemp("short"))).parent


@pytest.fixture(scope="session")
def kept() -> KeptRuns:
    """The project's own kept runs."""
    return KeptRuns.load(RESULTS)
