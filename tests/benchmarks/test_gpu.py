"""`make gpu` without a GPU: what it refuses, its rows and its table, of tiny cells on the CPU."""

import csv
import os
import subprocess
import sys
import time

import pytest
import torch

import sharmix
from benchmarks import gpu, gpu_contenders

CELL = {"classes": 20, "scale": 2.0, "dtype": "float32"}
SETTINGS = {
    "seed": 0,
    "budget_minutes": 25,
    "test_processes": 1,
    "rounds": 2,
    "block_seconds": 0.0001,
    "maps": [{"rows": 3, **CELL}],
    "layers": [{"rows": 3, "features": 4, **CELL}],
}
SOURCE = {
    "gpu": "NVIDIA H100",
    "capability": "9.0",
    "driver": "580",
    "cuda": "13.0",
    "torch": "2.11",
    "triton": "3.6",
    "commit": "0123456789abcdef",
    "changed": "",
}
PEERS = {"adasplash", "liger-kernel", "entmax", "cut-cross-entropy"}


@pytest.fixture
def no_peers(monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(gpu_contenders, "import_module", missing)


def measured(part, deadline=None):
    rows = gpu.PARTS[part](SETTINGS, time.monotonic() + 3600 if deadline is None else deadline, "cpu")
    return [{**row, **SOURCE} for found in rows for row in found]


@pytest.mark.medium
def test_without_a_gpu_one_line_says_so():
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu"],
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == f"make gpu needs a CUDA device; torch {torch.__version__} finds none\n"
    assert done.stdout == ""


def test_interpreted_kernels_and_a_missing_triton_are_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(sharmix, "backend", lambda device: "torch")
    with pytest.raises(SystemExit, match="needs the package triton"):
        gpu.check_device()
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with pytest.raises(SystemExit, match="unset TRITON_INTERPRET"):
        gpu.check_device()


@pytest.mark.parametrize(("part", "kinds"), [("maps", ["map", "loss"]), ("layers", ["layer"])])
def test_every_contender_has_a_row(no_peers, part, kinds):
    rows = measured(part)
    device = torch.device("cpu")
    assert [row["contender"] for row in rows] == [one.name for kind in kinds for one in gpu.contenders(kind, device)]
    for row in rows:
        if row["package"] in PEERS:
            assert row["note"].startswith("not installed (No module named")
            assert row["note"].endswith(f"pip install {row['package']}")
            assert "median_ratio" not in row
        else:
            assert row["note"] == ""
            assert row["lowest_microseconds"] <= row["median_microseconds"] <= row["highest_microseconds"]
        assert row["failed"] == 0
        if row["contender"] == gpu.BASELINES[row["kind"]]:
            assert row["median_ratio"] == 1


def test_a_contender_that_fails_stops_no_other_and_counts_if_it_is_ours(monkeypatch):
    ours, theirs = (gpu_contenders.Contender(name, "map", name, lambda: 1 / 0) for name in ("sharmix", "adasplash"))
    softmax = gpu_contenders._torch()[0]
    monkeypatch.setattr(gpu, "contenders", lambda kind, device: [softmax, ours, theirs])
    z = torch.zeros(2, 3, requires_grad=True)
    rows = gpu.measured("map", {"rows": 2, **CELL}, (z,), torch.ones(2, 3), SETTINGS, time.monotonic() + 3600)
    assert [row["failed"] for row in rows] == [0, 1, 0]
    assert [row["note"] for row in rows] == ["", *["failed: ZeroDivisionError: division by zero"] * 2]


def test_a_step_overwrites_no_input_and_keeps_no_gradient():
    z, order = torch.ones(3, requires_grad=True), torch.tensor(2.0, requires_grad=True)

    def run(logits):
        logits.data.zero_()
        return logits * order

    gpu.training_step(run, (z,), (order,), torch.ones(3))()
    assert z.sum() == 3
    assert order.grad is None


def test_cells_beyond_the_budget_are_named():
    rows = measured("maps", deadline=0)
    assert [row["note"] for row in rows] == ["not measured: the budget of 25 minutes was spent"] * 2


def test_a_part_replaces_its_own_rows_in_the_csv_and_the_table(no_peers, tmp_path):
    test = {"part": "tests", "kind": "test", "contender": "triton_kernels.py", "failed": 0, "note": "20 passed"}
    maps, layers = measured("maps"), measured("layers")
    for part, rows in (("layers", layers), ("maps", maps), ("maps", maps)):
        gpu.write(rows, part, tmp_path)
    gpu.write([{**test, **SOURCE}], "tests", tmp_path)
    with (tmp_path / "gpu.csv").open() as file:
        written = list(csv.DictReader(file))
    assert [row["part"] for row in written] == ["tests", *["maps"] * len(maps), *["layers"] * len(layers)]
    text = (tmp_path / "gpu.md").read_text()
    assert "- triton_kernels.py: 20 passed" in text
    assert "NVIDIA H100, compute capability 9.0, driver 580; CUDA 13.0, torch 2.11, triton 3.6" in text
    assert "commit 0123456789ab. Repeat: `make gpu`." in text
    assert "| 3 × 20, float32, scale 2 | softmax | " in text
    assert "| 3 × 4 × 20, float32, scale 2 | linear_fenchel_young_loss (1.25, 1.5) | " in text
    assert "pip install cut-cross-entropy" in text
    assert len([line for line in text.splitlines() if line.startswith("| 3 ")]) == len(written) - 1


@pytest.mark.medium
@pytest.mark.parametrize(
    ("source", "failed", "note"),
    [
        ("def test_a(): pass\ndef test_b(): assert 0", 1, "1 passed, 1 failed, 0 skipped"),
        ("import warnings\ndef test_a(): warnings.warn('of another torch')", 0, "1 passed, 0 failed, 0 skipped"),
    ],
)
def test_the_tests_are_counted(monkeypatch, tmp_path, source, failed, note):
    file = tmp_path / "test_kernels.py"
    file.write_text(source)
    monkeypatch.setattr(gpu, "KERNEL_TESTS", file)
    ((row,),) = gpu.measured_tests(SETTINGS, time.monotonic() + 3600)
    assert (row["failed"], row["note"]) == (failed, note)


def test_a_file_without_tests_and_a_pytest_that_does_not_start_fail(tmp_path):
    report = tmp_path / "report.xml"
    assert gpu._counts(report) == {"failed": 1, "note": "failed: pytest did not start"}
    report.write_text('<testsuites><testsuite tests="0" failures="0" errors="0" skipped="0"/></testsuites>')
    assert gpu._counts(report) == {"failed": 1, "note": "0 passed, 0 failed, 0 skipped"}


@pytest.mark.parametrize("failed", [0, 1])
def test_the_command_writes_each_part_and_its_status_says_whether_ours_failed(monkeypatch, capsys, tmp_path, failed):
    about = {"kind": "test", "contender": "triton_kernels.py", "note": "of a test"}
    measurers = {
        part: lambda settings, deadline, part=part: [[{"part": part, "failed": 0} | about]] for part in gpu.PARTS
    }
    measurers["maps"] = lambda settings, deadline: [[{"part": "maps", "failed": failed} | about]]
    monkeypatch.setattr(gpu, "PARTS", measurers)
    monkeypatch.setattr(gpu, "check_device", lambda: None)
    monkeypatch.setattr(gpu, "provenance", lambda commit: SOURCE)
    monkeypatch.setattr(sys, "argv", ["gpu", "--folder", str(tmp_path)])
    if failed:
        with pytest.raises(SystemExit, match="1 tests or measurements of sharmix failed"):
            gpu.main()
    else:
        gpu.main()
    assert capsys.readouterr().out.count("of a test") == (tmp_path / "gpu.csv").read_text().count("of a test") == 3


def test_what_the_rows_say_of_the_machine(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H100")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    found = gpu.provenance("0123")
    assert list(found) == list(SOURCE)
    assert (found["gpu"], found["capability"]) == ("NVIDIA H100", "9.0")
    assert found["commit"] == "0123"
    monkeypatch.setattr(gpu, "ROOT", "/")  # no checkout
    assert gpu.provenance(None)["commit"] == "unknown"
