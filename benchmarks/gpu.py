"""Times of the CUDA kernels on a GPU, beside torch and other packages: seven minutes, as gpu.yaml divides them.

python -m benchmarks.gpu
python -m benchmarks.gpu --part maps     # one part; each that measures has a CSV file of its own
python -m benchmarks.gpu --quick --folder outputs/benchmarks    # a rehearsal on the CPU, in tiny sizes

Each part that measures has a process of its own: one that crashes, or whose kernels do not end, stops no other.
This module needs torch, Triton and PyYAML alone, and sharmix need not be installed.
"""

import multiprocessing
import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from importlib import metadata
from pathlib import Path
from textwrap import fill
from typing import Any

import torch

import sharmix
from benchmarks.contenders import BASELINES, Contender, Inputs, attention_inputs, gpu_contenders, inputs, layer_inputs
from benchmarks.harness import Row, Step, command_line, step_times, time_columns, training_step, write_csv

Settings = Mapping[str, Any]
# What a part measures, and what draws its inputs.
PARTS: dict[str, tuple[str, Callable[..., Inputs]]] = {
    "maps": ("map", inputs),
    "losses": ("loss", inputs),
    "layers": ("layer", layer_inputs),
    "attention": ("attention", attention_inputs),
}
FAILED = "failed:"  # begins the note of a contender that ended in an error
NOT_MEASURED = "not measured: it, or what came before, did not end in time"
PASSES = {
    "map": 5,  # forward, logits read and probabilities written; backward, p and its gradient read, one written
    "loss": 2,  # logits read, and their gradient written
    "layer": 4,  # logits and their errors, each written and read
}


def check_device() -> None:
    """Exit with one line where compiled kernels cannot run."""
    if not torch.cuda.is_available():
        sys.exit(f"make gpu needs a CUDA device; torch {torch.__version__} finds none")
    if os.environ.get("TRITON_INTERPRET") == "1":
        sys.exit("make gpu needs compiled kernels; unset TRITON_INTERPRET, which is 1")
    if sharmix.backend("cuda") != "triton":
        sys.exit("make gpu needs Triton's kernels; `python -m sharmix` says why they are not in use")


def cells(part: str, settings: Settings) -> Iterator[Row]:
    """The sizes of a part, in each dtype, at each scale."""
    of = settings[part]
    for size in of["sizes"]:
        yield from ({**size, "scale": scale, "dtype": dtype} for dtype in of["dtypes"] for scale in of["scales"])


def drawn(part: str, cell: Row, settings: Settings) -> Any:
    """The arguments of a part's contenders, and the gradient of their output."""
    kind, draw = PARTS[part]
    size = cell | {"dtype": getattr(torch, cell["dtype"])}
    return draw(**size, seed=settings["seed"], device=settings["device"])[kind]


def prepared(one: Contender, tensors: Any, grad: Any) -> tuple[Step, Callable[..., Any], list[Any]]:
    """A contender's training step, which has been called once, so it is compiled; its function, and its inputs."""
    own = [tensor.detach().clone().requires_grad_(tensor.requires_grad) for tensor in tensors]
    run = one.load()
    step = training_step(run, own, one.parameters, grad)  # some contenders overwrite their inputs
    step()
    return step, run, own


def compile_all(settings: Settings, deadline: float) -> None:
    """Compile what all parts call, in several processes: Triton keeps compiled kernels in a folder."""
    few = settings["compiled_rows"]
    jobs = [
        (part, cell | ({"rows": min(cell["rows"], few)} if "rows" in cell else {}), one.name)
        for part, (kind, _) in PARTS.items()
        for cell in cells(part, settings)
        if cell["scale"] == settings[part]["scales"][0]
        for one in gpu_contenders(kind, torch.device("cpu"))
        if one.source not in ("torch", "floor")
    ]
    done = 0
    with multiprocessing.get_context("spawn").Pool(settings["processes"]) as pool:
        compiled = pool.imap_unordered(partial(compile_one, settings), jobs)
        with suppress(multiprocessing.TimeoutError):
            while done < len(jobs):
                compiled.next(max(0.0, deadline - time.monotonic()))
                done += 1
    print(f"compiled {done} of {len(jobs)} steps; the others compile when they are measured", flush=True)


def compile_one(settings: Settings, job: tuple[str, Row, str]) -> None:
    part, cell, name = job
    tensors, grad = drawn(part, cell, settings)
    for one in gpu_contenders(PARTS[part][0], tensors[0].device):
        if one.name == name:
            with suppress(Exception):  # the measurement will say what is wrong
                step = prepared(one, tensors, grad)[0]
                waiting(tensors[0].device)()
                step()  # another way, if an output layer knows by now that its rows are sparse


def speeds(settings: Settings, device: torch.device) -> dict[str, float]:
    """Bytes a second of a copy, which reads and writes, and operations a second of a product in each dtype."""
    side, source = settings["product_side"], torch.ones(settings["copied_mib"] * 2**18, device=device)
    target = torch.empty_like(source)
    steps: dict[str, Step] = {"copy": lambda: target.copy_(source)}
    for name in ("float32", "bfloat16"):
        square = torch.ones(side, side, dtype=getattr(torch, name), device=device)
        steps[name] = partial(torch.mm, square, square)
    times = step_times(steps, dict.fromkeys(steps, settings["rounds"]), settings, wait=waiting(device))
    done = {"copy": 2 * source.nbytes} | dict.fromkeys(("float32", "bfloat16"), 2 * side**3)
    return {name: done[name] / statistics.median(times[name, 1]) for name in steps}


def bound(kind: str, cell: Row, speed: Mapping[str, float]) -> float:
    """Seconds that the bytes of a step need, or its products if these need longer; of what it does not leave out."""
    product = speed[cell["dtype"]]
    if kind == "attention":  # two products forward and four backward, each of half of the scores
        return 6 * cell["heads"] * cell["length"] ** 2 * cell["features"] / product
    logits = cell["rows"] * cell["classes"]
    moved = PASSES[kind] * logits * getattr(torch, cell["dtype"]).itemsize
    return max(moved / speed["copy"], 6 * logits * cell.get("features", 0) / product)


def waiting(device: torch.device) -> Step:
    """What waits for the device."""
    return torch.cuda.synchronize if device.type == "cuda" else lambda: None


def row_of(one: Contender, cell: Row) -> Row:
    """The row of a contender before it is measured."""
    return {"kind": one.kind, **cell, "contender": one.name, "source": one.source, "note": NOT_MEASURED}


def measured(part: str, settings: Settings, deadline: float) -> Iterator[Row]:
    """The rows of a part, as far as they can be measured before the deadline."""
    kind, device = PARTS[part][0], torch.device(settings["device"])
    speed = speeds(settings, device)
    for cell in cells(part, settings):
        (tensors, grad), baseline = drawn(part, cell, settings), None
        for one in gpu_contenders(kind, device):
            if time.monotonic() > deadline:
                return
            row = row_of(one, cell) | {"note": "", "copy_tb_s": speed["copy"] / 1e12}
            row["bound_microseconds"] = 1e6 * bound(kind, cell, speed)
            try:
                step, run, own = prepared(one, tensors, grad)
                baseline = step if one.name == BASELINES[kind] else baseline
                if baseline is None:
                    row["note"] = f"not measured: {BASELINES[kind]}, with which it is compared, failed"
                else:
                    row |= measurements(step, baseline, settings, device)
                    row["worst_sum"] = None if one.source == "floor" else worst_sum(kind, run, own)
            except ModuleNotFoundError as error:
                row["note"] = f"not installed: pip install {one.source} ({error})"
            except Exception as error:  # an error of another package is no reason to stop
                row["note"] = f"{FAILED} {type(error).__name__}: {str(error)[:200]}"
            yield row


def measurements(step: Step, baseline: Step, settings: Settings, device: torch.device) -> Row:
    """Medians over rounds of a step's time and of its ratio to the baseline's; memory; and what the host does."""
    pair = {"baseline": baseline, "own": step} if step is not baseline else {"own": step}
    times = step_times(pair, dict.fromkeys(pair, settings["rounds"]), settings, wait=waiting(device))
    row: Row = time_columns(times["own", 1], times[next(iter(pair)), 1])
    calls = settings["host_calls"] if row["median_microseconds"] < 1e6 * settings["slow_seconds"] else 1
    row["host_microseconds"] = 1e6 * host_seconds(step, calls, device)
    if device.type == "cuda":
        row |= {"memory_mib": peak_memory(step, device), "waits": where_it_waits(step)}
    return row


def peak_memory(step: Step, device: torch.device) -> float:
    """MiB that a step allocates on a CUDA device beside its inputs, gradients included."""
    step()
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    step()
    return (torch.cuda.max_memory_allocated(device) - before) / 2**20


def host_seconds(step: Step, calls: int, device: torch.device) -> float:
    """The median time after which the host may go on while the device computes."""
    wait, times = waiting(device), []
    for _ in range(calls):
        wait()
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def where_it_waits(step: Step) -> str:
    """The file and line that lets the host wait for the device; `no` if nothing does."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        step()
    except RuntimeError as error:
        calls = traceback.extract_tb(error.__traceback__)
        last = [call for call in calls if "/torch/" not in call.filename][-1]
        return f"{Path(last.filename).name}:{last.lineno}"
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return "no"


@torch.no_grad()
def worst_sum(kind: str, run: Callable[..., Any], own: list[Any]) -> float | None:
    """How far the probabilities of a row are from the sum 1 at worst: whether a map or an attention solves its rows."""
    if kind == "map":
        sums = run(*own).float().sum(-1)
    elif kind == "attention":
        sums = run(*own[:2], torch.ones_like(own[2])).float()
    else:
        return None
    return (sums - 1).abs().max().item()


def provenance(commit: str) -> dict[str, str]:
    """The columns that say on which device, and with which versions, a row was measured."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    versions = {"cuda": str(torch.version.cuda), "torch": torch.__version__, "triton": version("triton")}
    return {"gpu": gpu, **versions, "commit": commit}


def version(package: str) -> str:
    with suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return ""


def heading(row: Row) -> str:
    """What is measured, with the least time that it needs."""
    size = " × ".join(f"{row[name]:,}" for name in ("heads", "rows", "length", "features", "classes") if name in row)
    bound_of = f"bound {row['bound_microseconds']:,.0f} µs"
    return f"{row['kind']} of {size}, {row['dtype']}, scale {row['scale']:g}: {bound_of}"


def line(row: Row) -> str:
    """A contender with its time, the ratios to the baseline's and to the bound, and the host's time; or why not."""
    if row["note"]:
        return fill(f"{row['contender']}: {row['note']}", 79, initial_indent="  ", subsequent_indent="    ")
    own, host = row["median_microseconds"], row["host_microseconds"]
    times = f"{own:10,.0f}{row['median_ratio']:8.2f}{own / row['bound_microseconds']:10.1f}{host:10,.0f}"
    waits = f"\n    waits at {row['waits']}" if row.get("waits", "no") != "no" else ""
    return f"  {row['contender']:36.36}{times}{waits}"


def record(part: str, settings: Settings, folder: Path, about: Row, deadline: float) -> None:
    """Measure a part, print and write its rows, and exit with 1 where a contender of ours failed."""
    kind, device = PARTS[part][0], torch.device("cpu")
    rows = [row_of(one, cell) for cell in cells(part, settings) for one in gpu_contenders(kind, device)]
    done, last = 0, ""

    def write() -> None:  # before all and after each, in case the process is stopped
        write_csv([row | {"version": version(row["source"])} | about for row in rows], folder / f"gpu_{part}.csv")

    write()
    for row in measured(part, settings, deadline):
        if heading(row) != last:
            print(last := heading(row), f"\n{'µs':>48}{'ratio':>8}{'of bound':>10}{'host, µs':>10}", sep="")
        print(line(row), flush=True)
        rows[done], done = row, done + 1
        write()
    if done < len(rows):
        print(f"{part}: {len(rows) - done} of {len(rows)} rows are not measured, for the time was over")
    if any(row["source"] == "sharmix" and row["note"].startswith(FAILED) for row in rows):
        sys.exit(f"make gpu: measurements of sharmix in {part} failed")


def finished(part: str, settings: Settings, folder: Path, about: Row, deadline: float) -> bool:
    """Run `record` in a process of its own, and stop it if it does not end."""
    arguments = part, settings, folder, about, deadline
    process = multiprocessing.get_context("spawn").Process(target=record, args=arguments)
    process.start()
    process.join(max(0.0, deadline - time.monotonic()) + settings["spare_seconds"])
    if process.is_alive():
        process.kill()
        process.join()  # so that its memory is free for the next part
        print(f"{part}: stopped, for a call does not end")
    return process.exitcode == 0


def main() -> None:
    """Command line: run the parts, and exit with 1 where a contender of ours failed."""
    parser = command_line("gpu", __doc__)
    parser.add_argument("--part", choices=["compile", *PARTS], help="this part alone; otherwise all")
    parser.add_argument("--commit", default="unknown", help="the commit that is measured, for the CSV files")
    options = parser.parse_args()
    settings, failed = options.settings, []
    if settings["device"] == "cuda":
        check_device()
    about, deadline = provenance(options.commit), time.monotonic()
    for part in [options.part] if options.part else settings["seconds"]:
        deadline += settings["seconds"][part]
        if part == "compile":
            compile_all(settings, deadline)
        elif not finished(part, settings, options.folder, about, deadline):
            failed.append(part)
    if failed:
        sys.exit(f"make gpu: {', '.join(failed)} failed")


if __name__ == "__main__":
    main()
