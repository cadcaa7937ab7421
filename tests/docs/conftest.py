"""The site, built once for all tests and all processes that run them."""

import subprocess
import sys

import pytest
from filelock import FileLock

from tests.docs.pages import ROOT


@pytest.fixture(scope="session")
def site(tmp_path_factory, worker_id):
    """The folder that `make site` fills, without the two pages that are made after Sphinx."""
    shared = tmp_path_factory.getbasetemp()
    folder = (shared if worker_id == "master" else shared.parent) / "site"
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "--quiet", "-E"]
            done = subprocess.run(
                [*command, "-j", "2", "-d", f"{folder}-doctrees", "-c", "docs", ".", folder],
                cwd=ROOT,
                capture_output=True,
                text=True,
            )
            assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return folder
