"""Folders of made-up results, and the project's own. Those of a session are built once and never changed."""

import shutil

import pytest

from reporting.records.kept_runs import KeptRuns
from tests.reporting.synthetic_records import keep_records
from tests.reporting.synthetic_results import DECLARATIONS, RESULTS, rebuild, small_records, write_short


@pytest.fixture
def small(tmp_path):
    """A small declaration with complete records."""
    keep_records(tmp_path, list(small_records()))
    return shutil.copytree(DECLARATIONS / "small", tmp_path, dirs_exist_ok=True)


@pytest.fixture
def short(tmp_path):
    """Runs that end after four of six epochs, and another experiment."""
    return write_short(tmp_path)


@pytest.fixture(scope="session")
def built_short(tmp_path_factory):
    """The short runs with their tables."""
    return rebuild(write_short(tmp_path_factory.mktemp("short"))).parent


@pytest.fixture(scope="session")
def kept():
    """The project's own kept runs."""
    return KeptRuns.load(RESULTS)
