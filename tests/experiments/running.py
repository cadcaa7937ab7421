"""The runner as a process of its own, for the tests whose subject it is."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def run(outputs: Path, *overrides: str) -> tuple[int, str]:
    """The exit status of `run.py` and what it printed."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "run.py"), *overrides, f"paths.outputs={outputs}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"NO_COLOR": "1"},
        cwd=outputs.parent,
        timeout=170,
    )
    return done.returncode, done.stdout


def only_record(outputs: Path) -> dict[str, Any]:
    (file,) = outputs.rglob("record.json")
    return json.loads(file.read_text())
