"""The first call of a function takes no second for imports that it does not need."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import sharmix
from tests.sharmix.cases import every_case

ROOT = Path(__file__).parents[2]


@pytest.mark.medium
def test_no_first_call_imports_a_compiler_or_computer_algebra():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.sharmix.imports"],
        cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=True, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    calls = dict(json.loads(done.stdout.splitlines()[-1]))
    functions = {name for name in sharmix.__all__ if name[0].islower()} - {"available_activations", "build_activation"}
    assert functions - {"register", "backend", "show_config"} <= set(calls)
    with every_case() as case:
        for name, imported in calls.items():
            with case(call=name):
                assert not imported
