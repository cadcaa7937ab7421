"""The CUDA kernels in Triton's interpreter, without a GPU. tests/benchmarks/test_gpu_instructions.py compiles them."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("triton")

pytestmark = pytest.mark.slow


def interpreted(*command):
    """What a command prints whose kernels the interpreter runs."""
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-m", *command],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )


@pytest.mark.parametrize("name", ["triton_kernels", "triton_rows_in_float64", "triton_layer", "triton_attention"])
def test_kernels_agree_with_float64(name):
    done = interpreted("pytest", "-q", "-p", "no:cacheprovider", f"tests/sharmix/{name}.py")
    assert done.returncode == 0, done.stdout[-3000:]
    assert "passed" in done.stdout


def test_programs_that_solve_a_row_together():
    done = interpreted("tests.sharmix.triton_together")
    assert done.returncode == 0, done.stderr[-3000:]
    for of_map, of_gradient, of_loss, of_slopes in json.loads(done.stdout):
        assert of_map <= 1e-6
        assert of_gradient <= 1e-6
        assert of_loss <= 3e-6
        assert of_slopes <= 3e-6
