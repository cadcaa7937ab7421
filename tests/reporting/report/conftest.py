"""The page of the project's own records, written once, and what a page carries."""

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from reporting.report.page import report_of_results


@pytest.fixture(scope="session")
def page(kept, tmp_path_factory):
    """The page of the project's kept runs."""
    return report_of_results(kept, tmp_path_factory.mktemp("page") / "report.html")


@pytest.fixture(scope="session")
def payload(page):
    """What the page of the project's kept runs carries for its script."""
    return carried_by(page)


def carried_by(page: Path) -> dict[str, Any]:
    """What a page carries for its script."""
    packed = re.search(r'<script type="application/gzip\+base64" id="payload">(.*?)</script>', page.read_text("utf-8"))
    assert packed is not None
    return json.loads(gzip.decompress(base64.b64decode(packed[1])))
