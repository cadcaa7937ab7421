"""`make gpu` without a GPU: what it refuses, and its rows of tiny cells on the CPU."""

import math
import re
import subprocess
import sys
import time
from types import SimpleNamespace
from unittest.mock import Mock

import pandas as pd
import pytest
import torch

import sharmix
from benchmarks import contenders, gpu, gpu_packages
from benchmarks.harness import load_settings, training_step

SETTINGS = load_settings("gpu") | load_settings("gpu")["quick"]
PEERS = {"adasplash", "liger-kernel", "entmax", "cut-cross-entropy", "quack-kernels"}
CPU, SPEED = torch.device("cpu"), {"copy": 1e12, "float32": 1e13, "bfloat16": 1e14}


def test_without_a_gpu_with_interpreted_kernels_and_without_triton_one_line_says_so(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="make gpu needs a CUDA device"):
        gpu.check_device()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(sharmix, "backend", lambda device: "torch")
    with pytest.raises(SystemExit, match="needs Triton's kernels"):
        gpu.check_device()
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with pytest.raises(SystemExit, match="unset TRITON_INTERPRET"):
        gpu.check_device()


@pytest.fixture(autouse=True)
def known_speeds(monkeypatch):
    monkeypatch.setattr(gpu, "speeds", lambda settings, device: SPEED)


def recorded(part, folder, seconds=600.0):
    gpu.record(part, SETTINGS, folder, {"commit": "0123"}, time.monotonic() + seconds)


@pytest.mark.parametrize("part", gpu.PARTS)
def test_every_contender_has_a_row_which_says_where_its_package_is_missing(monkeypatch, part):
    def missing(name):
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(contenders, "import_module", missing)
    kind = gpu.PARTS[part][0]
    rows = list(gpu.measured(part, SETTINGS, math.inf))
    assert [row["contender"] for row in rows] == [one.name for one in contenders.gpu_contenders(kind, CPU)]
    for row in rows:
        assert max(map(len, gpu.line(row).splitlines())) < 80
        if row["source"] in PEERS:
            assert row["note"].startswith(f"not installed: pip install {row['source']} (No module named")
            continue
        assert row["note"] == ""
        assert row["host_microseconds"] > 0
        if kind in ("map", "attention") and row["source"] != "floor":
            assert row["worst_sum"] < 1e-5
        if row["contender"] == contenders.BASELINES[kind]:
            assert row["median_ratio"] == 1


@pytest.mark.parametrize(
    ("kind", "cell", "microseconds"),
    [
        ("map", {"rows": 10, "classes": 1000}, 5 * 4e4 / 1e6),
        ("loss", {"rows": 10, "classes": 1000}, 2 * 4e4 / 1e6),
        ("layer", {"rows": 10, "classes": 1000, "features": 100}, 3 * 2e6 / 1e7),
        ("attention", {"heads": 2, "length": 100, "features": 10}, 6 * 2e5 / 1e7),
    ],
)
def test_the_bound_is_of_the_bytes_or_of_the_products(kind, cell, microseconds):
    assert 1e6 * gpu.bound(kind, cell | {"dtype": "float32"}, SPEED) == pytest.approx(microseconds)


def test_every_size_is_of_a_kind_that_can_be_drawn_and_maps_have_all_sizes_of_the_page():
    settings = load_settings("gpu")
    assert 180 + sum(settings["seconds"].values()) <= 600
    for part in gpu.PARTS:
        assert len(list(gpu.cells(part, settings))) == len({str(cell) for cell in gpu.cells(part, settings)})
    assert {"rows": 4096, "classes": 128256, "scale": 0.05, "dtype": "bfloat16"} in gpu.cells("maps", settings)


@pytest.mark.parametrize("source", ["sharmix", "adasplash"])
def test_a_contender_that_fails_stops_no_other_and_is_an_error_if_it_is_ours(monkeypatch, capsys, tmp_path, source):
    broken = contenders.Contender("broken", "map", source, lambda: 1 / 0)
    softmax = contenders.gpu_contenders("map", CPU)[0]
    monkeypatch.setattr(gpu, "gpu_contenders", lambda kind, device: [softmax, broken])
    if source == "sharmix":
        with pytest.raises(SystemExit, match="measurements of sharmix in maps failed"):
            recorded("maps", tmp_path)
    else:
        recorded("maps", tmp_path)
    assert "broken: failed: ZeroDivisionError: division by zero" in capsys.readouterr().out
    written = pd.read_csv(tmp_path / "gpu_maps.csv", dtype=str)
    assert written[["contender", "commit"]].to_numpy().tolist() == [["softmax", "0123"], ["broken", "0123"]]


def test_what_is_not_measured_in_time_has_a_row_that_says_so(monkeypatch, capsys, tmp_path):
    def first_alone(part, settings, deadline):
        yield next(iter(measured(part, settings, math.inf)))

    measured = gpu.measured
    monkeypatch.setattr(gpu, "measured", first_alone)
    recorded("losses", tmp_path)
    notes = pd.read_csv(tmp_path / "gpu_losses.csv")["note"].fillna("").tolist()
    assert notes == ["", *[gpu.NOT_MEASURED] * (len(notes) - 1)]
    assert f"losses: {len(notes) - 1} of {len(notes)} rows are not measured" in capsys.readouterr().out
    monkeypatch.setattr(gpu, "measured", measured)
    recorded("losses", tmp_path, seconds=-1)
    assert (pd.read_csv(tmp_path / "gpu_losses.csv")["note"] == gpu.NOT_MEASURED).all()


def test_without_its_baseline_a_contender_is_not_measured_and_does_not_fail(monkeypatch):
    softmax, other, *_ = contenders.gpu_contenders("map", CPU)
    broken = contenders.Contender(softmax.name, "map", "torch", lambda: 1 / 0)
    monkeypatch.setattr(gpu, "gpu_contenders", lambda kind, device: [broken, other])
    notes = [row["note"] for row in gpu.measured("maps", SETTINGS, math.inf)]
    assert notes == [
        "failed: ZeroDivisionError: division by zero",
        "not measured: softmax, with which it is compared, failed",
    ]


def test_a_part_that_does_not_end_is_stopped(monkeypatch, capsys, tmp_path):
    stuck = Mock(exitcode=None)  # ends only when it is killed
    stuck.is_alive.side_effect = lambda: stuck.exitcode is None
    stuck.kill.side_effect = lambda: stuck.configure_mock(exitcode=-9)
    context = SimpleNamespace(Process=lambda target, args: stuck)
    monkeypatch.setattr(gpu.multiprocessing, "get_context", lambda method: context)
    assert not gpu.finished("maps", SETTINGS | {"spare_seconds": 0}, tmp_path, {}, time.monotonic())
    assert capsys.readouterr().out == "maps: stopped, for a call does not end\n"
    assert all(call.args[0] < 1 for call in stuck.join.call_args_list if call.args)


def test_the_line_in_which_the_host_waits(monkeypatch):
    modes = []
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)
    assert gpu.where_it_waits(lambda: None) == "no"

    def step():
        raise RuntimeError("called a synchronizing CUDA operation")

    assert gpu.where_it_waits(step) == f"test_gpu.py:{step.__code__.co_firstlineno + 1}"
    assert modes == ["error", "default"] * 2


@pytest.mark.slow
def test_a_rehearsal_without_a_gpu_compiles_measures_and_writes_all_parts(tmp_path):
    command = [sys.executable, "-m", "benchmarks.gpu", "--quick", "--folder", str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    first, *lines = run.stdout.splitlines()
    assert re.match(r"compiled (\d+) of \1 steps", first)
    assert max(map(len, lines)) < 80
    assert {path.name for path in tmp_path.iterdir()} == {f"gpu_{part}.csv" for part in gpu.PARTS}


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
