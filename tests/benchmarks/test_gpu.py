"""`make gpu` without a GPU: what it refuses, and its rows of tiny cells on the CPU."""

import subprocess
import sys
from types import SimpleNamespace

import pandas as pd
import pytest
import torch

import sharmix
from benchmarks import contenders, gpu, gpu_packages
from benchmarks.harness import training_step

CELL = {"rows": 3, "classes": 20, "scale": 2.0, "dtype": "float32"}
SETTINGS = {
    "seed": 0,
    "rounds": 2,
    "block_seconds": 0.0001,
    "slow_seconds": 10,
    "maps": [CELL],
    "layers": [{"features": 4, **CELL}],
}
PEERS = {"adasplash", "liger-kernel", "entmax", "cut-cross-entropy"}


def test_without_a_gpu_with_interpreted_kernels_and_without_triton_one_line_says_so(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="make gpu needs a CUDA device"):
        gpu.check_device()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(sharmix, "backend", lambda device: "torch")
    with pytest.raises(SystemExit, match="needs the package triton"):
        gpu.check_device()
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with pytest.raises(SystemExit, match="unset TRITON_INTERPRET"):
        gpu.check_device()


@pytest.mark.parametrize(("part", "kinds"), [("maps", ["map", "loss"]), ("layers", ["layer"])])
def test_every_contender_has_a_row_which_says_where_its_package_is_missing(monkeypatch, part, kinds):
    def missing(name):
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(contenders, "import_module", missing)
    rows = list(gpu.measured(part, SETTINGS, "cpu"))
    expected = [one.name for kind in kinds for one in contenders.gpu_contenders(kind, torch.device("cpu"))]
    assert [row["contender"] for row in rows] == expected
    for row in rows:
        if row["source"] in PEERS:
            assert row["note"].startswith("not installed (No module named")
            assert gpu.line(row).endswith(f"pip install {row['source']}")
        else:
            assert row["note"] == ""
            assert f"µs, {row['median_ratio']:.2f} (" in gpu.line(row)
        if row["contender"] == contenders.BASELINES[row["kind"]]:
            assert row["median_ratio"] == 1


@pytest.mark.parametrize("source", ["sharmix", "adasplash"])
def test_a_contender_that_fails_stops_no_other_and_is_an_error_if_it_is_ours(monkeypatch, capsys, tmp_path, source):
    broken = contenders.Contender("broken", "map", source, lambda: 1 / 0)
    softmax = contenders.gpu_contenders("map", torch.device("cpu"))[0]
    monkeypatch.setattr(gpu, "gpu_contenders", lambda kind, device: [softmax, broken] if kind == "map" else [])
    map_rows = list(gpu.measured("maps", SETTINGS, "cpu"))
    monkeypatch.setattr(gpu, "measured", lambda part, settings: map_rows)
    monkeypatch.setattr(gpu, "check_device", lambda: None)
    monkeypatch.setattr(gpu, "provenance", lambda commit: {"gpu": "NVIDIA H100", "commit": commit})
    monkeypatch.setattr(sys, "argv", ["gpu", "--part", "maps", "--folder", str(tmp_path), "--commit", "0123"])
    if source == "sharmix":
        with pytest.raises(SystemExit, match="1 measurements of sharmix failed"):
            gpu.main()
    else:
        gpu.main()
    assert "broken: failed: ZeroDivisionError: division by zero" in capsys.readouterr().out
    written = pd.read_csv(tmp_path / "gpu_maps.csv", dtype=str)
    assert written[["contender", "gpu", "commit"]].to_numpy().tolist() == [
        ["softmax", "NVIDIA H100", "0123"],
        ["broken", "NVIDIA H100", "0123"],
    ]


def test_a_package_that_does_not_install_keeps_no_other_away(monkeypatch, capsys):
    tried = []

    def run(command):
        tried.append(command[-1].partition(">")[0])
        return SimpleNamespace(returncode="liger" in command[-1])

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(gpu_packages, "check_device", lambda: None)
    gpu_packages.main()
    assert {*tried} == PEERS
    assert capsys.readouterr().out.startswith("liger-kernel>=0.5 cannot be installed")


def test_a_step_has_new_gradients_each_time():
    z, order = torch.ones(3, requires_grad=True), torch.tensor(2.0, requires_grad=True)
    step = training_step(lambda logits: logits * order, (z,), (order,), torch.ones(3))
    step()
    step()
    assert (z.grad.tolist(), order.grad.item()) == ([2.0] * 3, 3.0)
