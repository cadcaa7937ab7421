"""What compilers make of the CUDA kernels: two kinds of rows by the Triton at hand, all kernels by two Tritons."""

import os
import re
import subprocess
import sys

import pytest
import yaml

triton = pytest.importorskip("triton")

from benchmarks import gpu_instructions  # noqa: E402
from benchmarks.instructions import ROOT  # noqa: E402

RECORD = yaml.safe_load(gpu_instructions.RECORD.read_text(encoding="utf-8"))
SECTIONS = [(version, f"sm_{arch}") for version in RECORD for arch in gpu_instructions.CASES]
OLDEST = "3.6.0"  # of torch 2.10, the oldest that pyproject.toml allows
# Kernels whose programs hold all that their registers can: docs/speed.md says why they spill.
FULL = re.compile(r"_of_lanes|32768/32|in.float64|attention")
SPILLED = 32  # bytes, the most that other kernels spill
SPILLS_BETWEEN = 24  # instructions of attention's loops, nearly all of those that list blocks


def assert_promises(name, counts):
    """Arithmetic in float32, loads of 128 bits, and no stack, or next to none."""
    if "float64" not in name and "concave" not in name:
        assert counts["float64"] <= (4 if "learned" in name else 0), name  # is the row rough?
    if "float32" in name and re.match(r"map_|loss_", name):
        assert counts["wide loads"] > 0, name
    if not FULL.search(name):
        assert counts["stack"] <= SPILLED, name
    if "_of_lanes" in name:
        assert counts["registers"] <= 80, name  # three programs for a multiprocessor
        assert counts["spills"][-1] == 0, name  # while it reads the row
    if "attention of" in name and "learned" not in name:
        within = counts["spills"][2 if "forward" in name else 0 :]  # the two longest loops hold the others
        assert sum(within) <= SPILLS_BETWEEN, name


@pytest.mark.medium
@pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")
def test_losses_of_short_and_of_long_rows():
    counted = gpu_instructions.count(90, gpu_instructions.QUICK)
    for name, counts in counted.items():
        assert_promises(name, counts)
    if recorded := RECORD.get(f"triton {triton.__version__}"):
        assert gpu_instructions.changes({name: recorded["sm_90"][name] for name in counted}, counted) == []


@pytest.mark.parametrize(("version", "arch"), SECTIONS)
def test_the_record_keeps_the_promises(version, arch):
    for name, counts in RECORD[version][arch].items():
        assert_promises(name, counts)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")
def test_attention_of_one_block_of_queries_compiles():
    """Triton makes a constant of an argument that is 1, which the interpreter does not."""
    counted = gpu_instructions.count(90, [("attention", (16, 64), "bfloat16", "β = 4")])
    assert len(counted) == 3


@pytest.mark.slow
@pytest.mark.parametrize("version", [triton.__version__, OLDEST])
def test_all_kernels_are_as_recorded(version):
    environment = os.environ.copy()
    if version != triton.__version__:
        folder = ROOT / f"outputs/triton-{version}"
        assert folder.is_dir(), f"`make outputs/{folder.name}` installs Triton {version}, which torch 2.10 has"
        environment["PYTHONPATH"] = str(folder)
    command = [sys.executable, "-m", "benchmarks.gpu_instructions"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"kernels of triton {version} are as recorded" in done.stdout


def test_a_longer_loop_more_registers_and_a_new_kernel_are_changes():
    before = RECORD["triton 3.6.0"]["sm_90"]
    name, counts = next(item for item in before.items() if item[1]["loops"])
    longer = [round(1.03 * length) for length in counts["loops"]]
    assert gpu_instructions.changes(before, before) == []
    for other in ({"loops": longer}, {"loops": []}, {"registers": 999}, {"spills": [9]}):
        assert len(gpu_instructions.changes(before, before | {name: counts | other})) == 1
    assert gpu_instructions.changes(before, before | {name: counts | {"stack": 0, "registers": 1}}) == []
    assert [line.split("\n")[0] for line in gpu_instructions.changes(before, before | {"new": counts})] == ["new"]
