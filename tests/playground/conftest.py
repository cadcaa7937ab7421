"""The playground in a real browser, opened from the file system."""

from contextlib import ExitStack

import pytest

from docs.playground.build import build
from tests.browser import opened
from tests.playground.visit import Visit


@pytest.fixture(scope="session")
def playground(tmp_path_factory):
    """The file of the built page."""
    file = tmp_path_factory.mktemp("playground") / "playground.html"
    build(file)
    return file


@pytest.fixture
def visit(browser, playground):
    """visit(fragment, **options of `opened`) opens the page, which must show no error and request nothing."""
    with ExitStack() as windows:
        shown = []

        def open_page(fragment: str = "", **options) -> Visit:
            shown.append(windows.enter_context(opened(browser, playground, fragment=fragment, **options)))
            return Visit(shown[-1].page)

        yield open_page
        assert [one.errors + one.requests for one in shown] == [[]] * len(shown)
