"""The CUDA kernels on a GPU: their tests, and times beside torch, adasplash, Liger and cut cross-entropy.

python -m benchmarks.gpu
python -m benchmarks.gpu --part maps    # or tests, or layers; the rows of the other parts stay

Beside torch and Triton this module needs PyYAML, and for the tests pytest, hypothesis, mpmath, NumPy, SciPy and rich;
sharmix need not be installed.
"""

import argparse
import csv
import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import torch
import yaml
from torch import Tensor

import sharmix
from benchmarks.gpu_contenders import BASELINES, contenders
from benchmarks.gpu_report import table

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = Path(__file__).with_suffix(".yaml")
KERNEL_TESTS = ROOT / "tests/sharmix/triton_kernels.py"

Row = dict[str, Any]
Step = Callable[[], None]


def check_device() -> None:
    """Exit with one line where compiled kernels cannot run."""
    if not torch.cuda.is_available():
        sys.exit(f"make gpu needs a CUDA device; torch {torch.__version__} finds none")
    if os.environ.get("TRITON_INTERPRET") == "1":
        sys.exit("make gpu needs compiled kernels; unset TRITON_INTERPRET, which is 1")
    if sharmix.backend("cuda") != "triton":
        sys.exit("make gpu needs the package triton, which is not installed")


def measured_tests(settings: dict[str, Any], deadline: float) -> Iterator[list[Row]]:
    """One row: how many tests of the kernels passed, failed or were skipped."""
    parallel = ["--numprocesses", str(settings["test_processes"])] if importlib.util.find_spec("xdist") else []
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        # Warnings are no errors here: another torch may have others than ours.
        options = ["-p", "no:cacheprovider", "-W", "default", *parallel, f"--junit-xml={report}"]
        try:
            subprocess.run(
                [sys.executable, "-m", "pytest", *options, str(KERNEL_TESTS)],
                cwd=ROOT,
                check=False,
                timeout=max(1.0, deadline - start),
            )
            counts = _counts(report)
        except subprocess.TimeoutExpired:
            counts = {"failed": 1, "note": _over(settings)}
    yield [{"part": "tests", "kind": "test", "contender": KERNEL_TESTS.name, "package": "sharmix", **counts}]
    print(f"tests: {time.monotonic() - start:.0f} s", flush=True)


def _counts(report: Path) -> Row:
    if not report.exists():
        return {"failed": 1, "note": "failed: pytest did not start"}
    suites = list(ElementTree.parse(report).getroot().iter("testsuite"))
    ran, failures, errors, skipped = (
        sum(int(suite.get(name, 0)) for suite in suites) for name in ("tests", "failures", "errors", "skipped")
    )
    failed = failures + errors
    note = f"{ran - failed - skipped} passed, {failed} failed, {skipped} skipped"
    return {"failed": max(failed, int(ran == 0)), "note": note}


def measured_maps(settings: dict[str, Any], deadline: float, device: str = "cuda") -> Iterator[list[Row]]:
    """For each cell, the rows of every map, then of every loss."""
    for cell in settings["maps"]:
        generator = torch.Generator(device).manual_seed(settings["seed"])
        shape, dtype = (cell["rows"], cell["classes"]), getattr(torch, cell["dtype"])
        logits = cell["scale"] * torch.randn(shape, generator=generator, device=device)
        logits = logits.to(dtype).requires_grad_()
        grad = torch.randn(shape, generator=generator, device=device).to(dtype)
        targets = torch.randint(cell["classes"], shape[:1], generator=generator, device=device)
        yield measured("map", cell, (logits,), grad, settings, deadline)
        yield measured("loss", cell, (logits, targets), None, settings, deadline)


def measured_layers(settings: dict[str, Any], deadline: float, device: str = "cuda") -> Iterator[list[Row]]:
    """For each cell, the rows of every output layer with its loss."""
    for cell in settings["layers"]:
        generator = torch.Generator(device).manual_seed(settings["seed"])
        features, classes, dtype = cell["features"], cell["classes"], getattr(torch, cell["dtype"])
        hidden = torch.randn(cell["rows"], features, generator=generator, device=device)
        weight = torch.randn(classes, features, generator=generator, device=device) * cell["scale"] / features**0.5
        targets = torch.randint(classes, hidden.shape[:1], generator=generator, device=device)
        layer = hidden.to(dtype).requires_grad_(), weight.to(dtype).requires_grad_()
        yield measured("layer", cell, (*layer, targets), None, settings, deadline)


PARTS = {"tests": measured_tests, "maps": measured_maps, "layers": measured_layers}


def measured(
    kind: str, cell: Row, inputs: tuple[Tensor, ...], grad: Tensor | None, settings: dict[str, Any], deadline: float
) -> list[Row]:
    """A row for each contender of a kind: medians over rounds of its time and of its ratio to the baseline's."""
    start, device = time.monotonic(), inputs[0].device
    about = {"part": "layers" if kind == "layer" else "maps", "kind": kind, **cell}
    if start > deadline:
        return [{**about, "contender": "all", "failed": 0, "note": _over(settings)}]
    found: list[Row] = []
    steps: dict[str, Step] = {}
    for one in contenders(kind, device):
        row = {**about, "contender": one.name, "package": one.package, "failed": 0, "note": ""}
        found.append(row)
        try:
            step = training_step(one.load(), inputs, one.parameters, grad)
            step()  # compiles the kernels
            steps[one.name] = step
        except ModuleNotFoundError as error:
            row["note"] = f"not installed ({error}): pip install {one.package}"
        except Exception as error:  # an error of another package is no reason to stop
            row |= {"failed": int(one.package == "sharmix"), "note": _failure(error)}
    times = times_in_turn(steps, settings)
    baseline = times[BASELINES[kind]]
    for row in found:
        if seconds := times.get(row["contender"]):
            ratios = [own / other for own, other in zip(seconds, baseline, strict=True)]
            row |= {f"{name}_microseconds": 1e6 * value for name, value in _spread(seconds).items()}
            row |= {f"{name}_ratio": value for name, value in _spread(ratios).items()}
            row["memory_mib"] = peak_memory(steps[row["contender"]], device)
    size = " × ".join(str(cell[name]) for name in ("rows", "features", "classes") if name in cell)
    print(f"{kind} of {size}, {cell['dtype']}: {time.monotonic() - start:.0f} s", flush=True)
    return found


def training_step(
    run: Callable[..., Tensor], inputs: Sequence[Tensor], parameters: Sequence[Tensor], grad: Tensor | None
) -> Step:
    """Forward and backward, on copies of the inputs, for some functions overwrite them.

    Args:
        run: the map, loss or layer.
        inputs: its arguments.
        parameters: learned tensors that get gradients too.
        grad: the gradient of a map's output; None for losses and layers.
    """
    inputs = [tensor.detach().clone().requires_grad_(tensor.requires_grad) for tensor in inputs]
    leaves = [tensor for tensor in (*inputs, *parameters) if tensor.requires_grad]

    def step() -> None:
        run(*inputs).backward(grad)
        for leaf in leaves:
            leaf.grad = None

    return step


def times_in_turn(steps: dict[str, Step], settings: dict[str, Any]) -> dict[str, list[float]]:
    """Seconds of each step, one measurement a round. The timer waits for the device before and after it."""
    from torch.utils.benchmark import Timer  # its import warns where there is no GPU; `check_device` says it in a line

    timers = {name: Timer("step()", globals={"step": step}) for name, step in steps.items()}
    counts = {name: max(1, round(settings["block_seconds"] / timer.timeit(2).mean)) for name, timer in timers.items()}
    times: dict[str, list[float]] = {name: [] for name in timers}
    for _ in range(settings["rounds"]):
        for name, timer in timers.items():
            times[name].append(timer.timeit(counts[name]).mean)
    return times


def peak_memory(step: Step, device: torch.device) -> float | None:
    """MiB that a step allocates on a CUDA device beside its inputs, gradients included."""
    if device.type != "cuda":
        return None
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    step()
    return (torch.cuda.max_memory_allocated(device) - before) / 2**20


def _failure(error: Exception) -> str:
    lines = str(error).splitlines() or [""]
    return f"failed: {type(error).__name__}: {lines[0][:200]}"


def _over(settings: dict[str, Any]) -> str:
    return f"not measured: the budget of {settings['budget_minutes']} minutes was spent"


def _spread(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "lowest": min(values), "highest": max(values)}


def provenance(commit: str | None) -> dict[str, str]:
    """The columns of the CSV that say where a row comes from."""
    import triton

    major, minor = torch.cuda.get_device_capability()
    return {
        "gpu": torch.cuda.get_device_name(),
        "capability": f"{major}.{minor}",
        "driver": _output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
        "cuda": str(torch.version.cuda),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "commit": commit or _output("git", "rev-parse", "HEAD"),
        "changed": _output("git", "status", "--porcelain", "--", "sharmix", "benchmarks", "tests/sharmix", default=""),
    }


def _output(*command: str, default: str = "unknown") -> str:
    """The first line of what a command prints, or the default where it cannot be run or prints nothing."""
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return default
    return next(iter(done.stdout.splitlines()), default).strip()


def write(rows: list[Row], part: str, folder: Path) -> list[dict[str, str]]:
    """Replace the part's rows in gpu.csv and make gpu.md of all rows, which are returned as the CSV has them."""
    path = folder / "gpu.csv"
    others: list[Row] = []
    if path.exists():
        with path.open(newline="", encoding="utf-8") as file:
            others = [row for row in csv.DictReader(file) if row["part"] != part]
    every = sorted([*others, *rows], key=lambda row: list(PARTS).index(row["part"]))
    columns = list(dict.fromkeys(column for row in every for column in row))
    folder.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: _printed(value) for name, value in row.items()} for row in every)
    with path.open(newline="", encoding="utf-8") as file:
        written = list(csv.DictReader(file))
    (folder / "gpu.md").write_text(table(written), encoding="utf-8")
    return written


def _printed(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value


def main() -> None:
    """Command line: test and measure, write the CSV and its table, and exit with 1 where anything of ours failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--part", choices=PARTS, help="this part alone; otherwise all")
    parser.add_argument("--folder", type=Path, default=ROOT / "results/benchmarks", help="for what is written")
    parser.add_argument("--commit", help="the commit of a copy that has no .git")
    options = parser.parse_args()
    check_device()
    settings = yaml.safe_load(SETTINGS.read_text(encoding="utf-8"))
    deadline, source = time.monotonic() + 60 * settings["budget_minutes"], provenance(options.commit)
    failed = 0
    for part in [options.part] if options.part else PARTS:
        rows: list[Row] = []
        for found in PARTS[part](settings, deadline):
            rows += [{**row, **source} for row in found]
            write(rows, part, options.folder)  # after each cell, so that a run cut short leaves its rows
        failed += sum(row["failed"] for row in rows)
    print((options.folder / "gpu.md").read_text(encoding="utf-8"))
    if failed:
        sys.exit(f"make gpu: {failed} tests or measurements of sharmix failed; {options.folder / 'gpu.md'} names them")


if __name__ == "__main__":
    main()
