"""A real browser, and a page in it that is opened from the file system and watched for errors and for requests."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")  # names of the program, the first that is there
DESKTOP, PHONE = (1280, 900), (390, 844)  # width and height of the window, in pixels
SEVERE = ("serious", "critical")  # findings of axe-core that no page may have


class Opened(NamedTuple):
    """A page in the browser."""

    page: Any  # Playwright's
    errors: list[str]  # what the console has shown as errors and warnings, and exceptions that nothing caught
    requests: list[str]  # addresses that the page has asked for, its own file aside


@contextmanager
def chromium() -> Iterator[Any]:
    """Chromium or Chrome, without a window; the test is skipped where it or Playwright is not installed."""
    playwright = pytest.importorskip("playwright.sync_api", reason="no browser test ran: pip install playwright")
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip(f"no browser test ran: there is none of {', '.join(BROWSERS)}; apt-get install chromium")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def opened(
    browser: Any, file: Path, *, size: tuple[int, int] = DESKTOP, dark: bool = False, fragment: str = "", **options: Any
) -> Iterator[Opened]:
    """Open a file, and a fragment of it, in a fresh window; `options` are those of Playwright's `new_context`."""
    viewport, scheme = dict(zip(("width", "height"), size, strict=True)), "dark" if dark else "light"
    context = browser.new_context(viewport=viewport, color_scheme=scheme, **options)
    page = context.new_page()
    page.set_default_timeout(10_000)
    errors: list[str] = []
    requests: list[str] = []
    address = file.resolve().as_uri()
    page.on("console", lambda message: message.type in ("error", "warning") and errors.append(message.text))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: requests.append(request.url) if not request.url.startswith(address) else None)
    page.goto(f"{address}#{fragment}" if fragment else address)
    yield Opened(page, errors, requests)
    context.close()


def severe_findings(page: Any) -> list[str]:
    """What axe-core finds serious or critical on a page: the rule, and the first elements that break it."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    return [
        f"{one['id']}: {', '.join(' '.join(map(str, node['target'])) for node in one['nodes'][:5])}"
        for one in found
        if one["impact"] in SEVERE
    ]
