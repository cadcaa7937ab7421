"""Times of the CUDA kernels on a GPU, beside torch, adasplash, Liger and cut cross-entropy.

python -m benchmarks.gpu
python -m benchmarks.gpu --part maps    # or layers; each part has a CSV file of its own

This module needs torch, Triton and PyYAML alone, and sharmix need not be installed.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

import sharmix
from benchmarks.contenders import BASELINES, gpu_contenders, inputs, layer_inputs
from benchmarks.harness import Row, Step, command_line, step_times, time_columns, training_step, with_range, write_csv

PARTS = {"maps": inputs, "layers": layer_inputs}
FAILED = "failed:"  # begins the note of a contender that ended in an error


def check_device() -> None:
    """Exit with one line where compiled kernels cannot run."""
    if not torch.cuda.is_available():
        sys.exit(f"make gpu needs a CUDA device; torch {torch.__version__} finds none")
    if os.environ.get("TRITON_INTERPRET") == "1":
        sys.exit("make gpu needs compiled kernels; unset TRITON_INTERPRET, which is 1")
    if sharmix.backend("cuda") != "triton":
        sys.exit("make gpu needs the package triton, which is not installed")


def measured(part: str, settings: Mapping[str, Any], device: str = "cuda") -> Iterator[Row]:
    """For each cell of a part, the rows of every map, then of every loss; or the rows of every output layer."""
    for cell in settings[part]:
        size = cell | {"dtype": getattr(torch, cell["dtype"])}
        for kind, (tensors, grad) in PARTS[part](**size, seed=settings["seed"], device=device).items():
            yield from measured_kind(kind, cell, tensors, grad, settings)


def measured_kind(
    kind: str, cell: Row, tensors: tuple[Tensor, ...], grad: Tensor | None, settings: Mapping[str, Any]
) -> Iterator[Row]:
    """A row for each contender of a kind: medians over rounds of its time and of its ratio to the baseline's."""
    device, notes = tensors[0].device, {}
    steps: dict[str, Step] = {}
    entrants = gpu_contenders(kind, device)
    for one in entrants:
        own = [tensor.detach().clone().requires_grad_(tensor.requires_grad) for tensor in tensors]
        try:
            step = training_step(one.load(), own, one.parameters, grad)  # some contenders overwrite their inputs
            step()  # compiles the kernels
            steps[one.name] = step
        except ModuleNotFoundError as error:
            notes[one.name] = f"not installed ({error}): pip install {one.source}"
        except Exception as error:  # an error of another package is no reason to stop
            notes[one.name] = f"{FAILED} {type(error).__name__}: {str(error)[:200]}"
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    times = step_times(steps, dict.fromkeys(steps, settings["rounds"]), settings, wait=wait)
    for one in entrants:
        row = {"kind": kind, **cell, "contender": one.name, "source": one.source, "note": notes.get(one.name, "")}
        if one.name in steps:
            row |= time_columns(times[one.name, 1], times[BASELINES[kind], 1])
            row["memory_mib"] = peak_memory(steps[one.name], device)
        yield row


def peak_memory(step: Step, device: torch.device) -> float | None:
    """MiB that a step allocates on a CUDA device beside its inputs, gradients included."""
    if device.type != "cuda":
        return None
    step()
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    step()
    return (torch.cuda.max_memory_allocated(device) - before) / 2**20


def provenance(commit: str) -> dict[str, str]:
    """The columns that say on which device, and with which versions, a row was measured."""
    import triton

    versions = {"cuda": str(torch.version.cuda), "torch": torch.__version__, "triton": triton.__version__}
    return {"gpu": torch.cuda.get_device_name(), **versions, "commit": commit}


def line(row: Row) -> str:
    """A row in words: its case, its contender, and the time and memory, or why there are none."""
    size = " × ".join(str(row[name]) for name in ("rows", "features", "classes") if name in row)
    case = f"{row['kind']} of {size}, {row['dtype']}, scale {row['scale']:g}: {row['contender']}"
    if row["note"]:
        return f"{case}: {row['note']}"
    ratio = with_range(row["median_ratio"], row["lowest_ratio"], row["highest_ratio"])
    memory = "" if row["memory_mib"] is None else f", {row['memory_mib']:,.0f} MiB beside its inputs"
    return f"{case}: {row['median_microseconds']:,.0f} µs, {ratio} of the time of {BASELINES[row['kind']]}{memory}"


def main() -> None:
    """Command line: measure, print and write the rows, and exit with 1 where a contender of ours failed."""
    parser = command_line("gpu", __doc__)
    parser.add_argument("--part", choices=PARTS, help="this part alone; otherwise both")
    parser.add_argument("--commit", default="unknown", help="the commit that is measured, for the CSV files")
    options = parser.parse_args()
    check_device()
    source, failed = provenance(options.commit), 0
    for part in [options.part] if options.part else PARTS:
        rows: list[Row] = []
        for row in measured(part, options.settings):
            print(line(row), flush=True)
            rows.append({**row, **source})
            write_csv(rows, options.folder / f"gpu_{part}.csv")  # now, in case the run is cut short
        failed += sum(row["source"] == "sharmix" and row["note"].startswith(FAILED) for row in rows)
    if failed:
        sys.exit(f"make gpu: {failed} measurements of sharmix failed")


if __name__ == "__main__":
    main()
