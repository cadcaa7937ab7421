"""Folders of made-up results. Those of a session are built once and never changed."""

from pathlib import Path

import pytest

from reporting.kept_runs import KeptRuns
from tests.reporting.synthetic_results import (
    image_records,
    loaded,
    rebuild,
    threshold_records,
    translation_records,
    write_projects,
    write_short,
    write_small,
)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A small declaration with complete records."""
    return write_small(tmp_path)


@pytest.fixture
def short(tmp_path: Path) -> Path:
    """Runs that end after four of six epochs, a long tail, and learned orders."""
    return write_short(tmp_path)


@pytest.fixture(scope="session")
def built_small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small declaration with its tables."""
    return rebuild(write_small(tmp_path_factory.mktemp("small"))).parent


@pytest.fixture(scope="session")
def built_short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The short runs with their tables."""
    return rebuild(write_short(tmp_path_factory.mktemp("short"))).parent


@pytest.fixture(scope="session")
def projects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's declaration, with made-up records of balanced images and of translation."""
    return write_projects(
        tmp_path_factory.mktemp("projects"),
        cifar100=image_records("cifar100"),
        multi30k=translation_records(),
        multi30k_early=threshold_records(),
    )


@pytest.fixture(scope="session")
def kept(projects: Path) -> KeptRuns:
    """The runs of the project's declaration with made-up records."""
    return loaded(projects)
