"""The CUDA kernels in Triton's interpreter, without a GPU. tests/benchmarks/test_gpu_instructions.py compiles them."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton")


@pytest.mark.slow
def test_kernels_agree_with_plain_torch_in_the_interpreter():
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/sharmix/triton_kernels.py"],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert "passed" in done.stdout
