"""The page of the project's own records, and the page of made-up runs at work; each is written once."""

from pathlib import Path

import pytest

from reporting.kept_runs import KeptRuns
from reporting.report.page import report_of_outputs, report_of_results
from tests.reporting.report.outputs import write_outputs
from tests.reporting.synthetic_results import RESULTS


@pytest.fixture(scope="session")
def own_runs() -> KeptRuns:
    """The project's kept runs."""
    return KeptRuns.load(RESULTS)


@pytest.fixture(scope="session")
def page(own_runs: KeptRuns, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the project's kept runs."""
    return report_of_results(own_runs, tmp_path_factory.mktemp("page") / "report.html")


@pytest.fixture(scope="session")
def page_at_work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of runs that have finished, failed, stopped, and not begun."""
    folder = tmp_path_factory.mktemp("at_work")
    write_outputs(folder / "outputs")
    return report_of_outputs(folder / "outputs", folder / "report.html")
