"""The playground in a real browser, opened from the file system."""

import pytest

from playground.build import build
from tests.playground.browser import Visit


@pytest.fixture(scope="session")
def address(tmp_path_factory) -> str:
    """Where the built page lies."""
    pytest.importorskip("ziglang", reason="the playground was not tested, for want of a compiler: pip install ziglang")
    file = tmp_path_factory.mktemp("playground") / "playground.html"
    build(file)
    return file.as_uri()


@pytest.fixture
def visit(browser, address):
    """visit(fragment, **settings of the browser) opens the page, which must leave no error and request nothing."""
    contexts, visits = [], []

    def open_page(fragment: str = "", **settings) -> Visit:
        contexts.append(browser.new_context(**({"viewport": {"width": 1280, "height": 900}} | settings)))
        visits.append(Visit(contexts[-1].new_page(), address + fragment))
        return visits[-1]

    yield open_page
    for context in contexts:
        context.close()
    for one in visits:
        assert one.complaints == []
        assert one.requests == [address]
