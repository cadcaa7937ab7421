"""The CUDA kernels without a GPU: run by Triton's interpreter, and compiled for a GPU that is not here."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton")


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_kernels_agree_with_plain_torch_in_the_interpreter():
    done = run(
        "pytest", "-q", "-x", "-p", "no:cacheprovider", "tests/sharmix/triton_interpreted.py", TRITON_INTERPRET="1"
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert "passed" in done.stdout


def test_kernels_compile_for_a_hopper_gpu():
    done = run("tests.sharmix.compile_triton")
    assert done.returncode == 0, done.stderr[-3000:]
    of_rows = ["_solve", "_class_loss", "_solve", "_map_backward", "_class_loss_backward"]
    assert done.stdout.split() == [*of_rows, "_partial_sums", "_newton_step"] * 2
