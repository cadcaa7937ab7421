"""Compiles the CUDA kernels, which needs no GPU, and compares what the compiler made of them with the record.

python -m benchmarks.gpu_instructions
"""

import argparse
import contextlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from typing import Any
from unittest import mock

import torch
import triton
import yaml
from triton.backends.compiler import GPUTarget

from benchmarks.instructions import LIMIT, ROOT, TOLERANCE, origin
from experiments.files import write_atomically
from sharmix._operators.triton import attention, implementation, layer, solving
from sharmix._operators.triton.launch import FUSION

RECORD = ROOT / "results/benchmarks/gpu_instructions.yaml"
KERNELS = "sharmix/_operators/triton"
ORDERS = {
    "β = 4": (1.25, 1.5, 1.0),
    "β = 2": (1.5, 1.5, 1.0),
    "β = 1": (2.0, 2.0, 1.0),
    "any β": (1.3, 1.5, 1.0),
    "not concave": (1.75, 1.25, 1.0),
    "learned": (torch.empty(1, device="meta"),) * 3,
}
# rows, classes: in registers; by lanes and in registers; in blocks; together
SHORT, LONG, IN_BLOCKS, TOGETHER = (4096, 2048), (4096, 32000), (4096, 300032), (8, 262144)
WIDE, NARROW = (8192, 128), (8192, 64)  # of attention: queries or keys, and the size of a head
_LOOPS = 3  # that are recorded: the longest
_LOOPS_OF_ATTENTION = 10  # all: the loops over keys are within two others
_INSTRUCTION = re.compile(r"/\*([0-9a-f]+)\*/\s+(@\S+)?\s*(\S+)([^;\n]*);")  # address, condition, name

Case = tuple[str, tuple[int, int], str, str]  # the call, the shape of the logits or queries, their dtype, the orders


def _map(logits: torch.Tensor, orders: Any, slopes: str) -> None:
    p, _, kept = implementation.solve(logits, orders, False, True)
    implementation.map_backward(p, logits, orders, slopes, kept)


def _loss(logits: torch.Tensor, orders: Any, slopes: str) -> None:
    implementation.class_loss(logits, _targets(logits), orders, -100, "mean", slopes, "gradient")


def _loss_backward(logits: torch.Tensor, orders: Any, slopes: str) -> None:
    implementation.scaled(logits, logits[0, 0])
    states = logits.new_empty((len(logits), 4), dtype=torch.float64)
    implementation.class_loss_backward(logits, _targets(logits), states, logits[0, 0], orders, -100, 1.0)


def _layer(logits: torch.Tensor, orders: Any, slopes: str) -> None:
    hidden, weight = logits.new_empty(len(logits), 1024), logits.new_empty(logits.shape[1], 1024)
    problem = layer.Layer(hidden, weight, _targets(logits), orders, -100, 0.0, (True, True, True), slopes != "none")
    with mock.patch.object(layer, "supports_of") as supports_of:
        supports_of.return_value.room.return_value = 64  # places of a list
        layer.layer_loss([(slice(0, len(logits)), logits)], problem, weight)


def _attention(queries: torch.Tensor, orders: Any, slopes: str) -> None:
    query = queries.unsqueeze(0).unsqueeze(0)
    problem = attention.Problem(query, query, query, None, orders, 0.1, True)
    output, saved = attention.forward(problem, True)
    attention.backward(problem, output, saved, query, True, slopes != "none")


def _targets(logits: torch.Tensor) -> torch.Tensor:
    return logits.new_empty(len(logits), dtype=torch.int64)


CALLS = {
    "map": _map,
    "loss": _loss,
    "loss backward": _loss_backward,
    "layer": _layer,
    "attention": _attention,
}
# sm_80 and sm_90 compile the same code: of both the main cases, of sm_90 all
MAIN: list[Case] = [
    *[("loss", shape, "float32", "β = 4") for shape in (SHORT, LONG, IN_BLOCKS, TOGETHER)],
    *[("map", LONG, dtype, "β = 4") for dtype in ("float32", "bfloat16")],
    ("loss", LONG, "float32", "any β"),
    ("loss backward", LONG, "float32", "β = 4"),
    ("layer", LONG, "bfloat16", "β = 4"),
    ("attention", WIDE, "bfloat16", "β = 4"),
]
QUICK = MAIN[:2]
CASES: dict[int, list[Case]] = {
    80: MAIN,
    90: [
        *MAIN,
        *[("map", shape, "float32", "β = 4") for shape in (SHORT, IN_BLOCKS, TOGETHER)],
        *[(call, LONG, "float32", orders) for call in ("map", "loss") for orders in ("β = 2", "β = 1", "learned")],
        *[("loss", shape, "float32", "any β") for shape in (SHORT, IN_BLOCKS, TOGETHER)],
        ("map", LONG, "float32", "any β"),
        ("loss", LONG, "bfloat16", "β = 4"),
        ("loss", LONG, "bfloat16", "learned"),
        ("loss backward", LONG, "bfloat16", "any β"),
        ("layer", LONG, "float32", "learned"),
        ("loss", SHORT, "float32", "learned"),
        *[(call, SHORT, "float32", "not concave") for call in ("map", "loss")],
        ("attention", NARROW, "bfloat16", "β = 4"),
        *[("attention", shape, "bfloat16", "any β") for shape in (WIDE, NARROW)],
        ("attention", WIDE, "bfloat16", "learned"),
    ],
}


class _Driver:
    """Stands for a GPU that is not here, of a compute capability, which is also the device's number."""

    def __init__(self, arch: int) -> None:
        self.get_current_target = lambda: GPUTarget("cuda", arch, 32)
        self.get_current_device = lambda: arch
        self.get_current_stream = lambda device: 0


def count(arch: int, cases: Iterable[Case]) -> dict[str, dict[str, Any]]:
    """The counts of every kernel that the cases launch, by kernel, block and warps, and the first case."""
    found, seen = {}, set()
    driver = mock.patch.object(triton.runtime.driver, "_active", _Driver(arch))
    with driver, mock.patch.object(attention, "has_wgmma", return_value=arch >= 90):
        for case in cases:
            call, (_, classes), dtype, orders = case
            of = f"heads of {classes}" if call == "attention" else f"{classes} classes"
            for kernel, arguments, options, constants in _launches(*case):
                compiled = kernel.warmup(*arguments, *constants.values(), grid=(1, 1, 1), **FUSION, **options)
                if compiled.hash not in seen:
                    wide = " in float64" if "fp64" in str(constants.get("TYPE")) else ""
                    sizes = [constants[name] for name in ("BLOCK", "M", "N", "K") if name in constants]
                    block = " × ".join(map(str, sizes or constants["KIND"][-2:]))
                    name = f"{kernel.__name__}{wide} {block}/{options['num_warps']}"
                    loops = _LOOPS_OF_ATTENTION if call == "attention" else _LOOPS
                    found[f"{name}, {call} of {of}, {dtype}, {orders}"] = counts_of(compiled.asm["cubin"], loops)
                seen.add(compiled.hash)
    return found


def _launches(call: str, shape: tuple[int, int], dtype: str, orders: str) -> list[Any]:
    """What the library launches in a call on a GPU of 132 multiprocessors."""
    launches: list[Any] = []

    def launch(kernel: Any, grid: Any, arguments: Any, options: Any, **constants: Any) -> None:
        launches.append((kernel, arguments, options, constants))

    with contextlib.ExitStack() as patches:
        for module in (attention, implementation, solving, layer):
            patches.enter_context(mock.patch.object(module, "launch", launch))
        patches.enter_context(mock.patch.object(solving, "multiprocessors", return_value=132))
        logits = torch.empty(shape, dtype=getattr(torch, dtype), device="meta")
        CALLS[call](logits, ORDERS[orders], "sums" if orders == "learned" else "none")
    return launches


def counts_of(cubin: bytes, most: int = _LOOPS) -> dict[str, Any]:
    """Of a thread: registers, bytes of stack, instructions by kind, and those of the longest loops, with spills."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [triton.knobs.nvidia.cuobjdump.path, "-res-usage", "-sass", file.name]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    registers, stack = re.search(r"REG:(\d+) STACK:(\d+)", printed).groups()
    code = _INSTRUCTION.findall(printed)
    names = [name for _, _, name, _ in code]
    loads = [name for name in names if name.startswith("LDG")]
    loops = sorted(([names[place] for place in loop] for loop in _loops_of(code)), key=len)[: -most - 1 : -1]
    return {
        "registers": int(registers),
        "stack": int(stack),
        "float64": sum(bool(re.match(r"D(ADD|FMA|MUL|SETP|MNMX)\b", name)) for name in names),
        "wide loads": sum("128" in name for name in loads),
        "narrow loads": sum("128" not in name for name in loads),
        "loops": [len(loop) for loop in loops],
        "spills": [sum(name.startswith(("LDL", "STL")) for name in loop) for loop in loops],
    }


def _loops_of(code: list[tuple[str, str, str, str]]) -> Iterable[set[int]]:
    """The instructions of each loop: those that lead to a jump back whose target every way to it passes."""
    places = {int(address, 16): place for place, (address, *_) in enumerate(code)}
    after, before = ([[] for _ in code] for _ in range(2))
    for place, (_, condition, name, operands) in enumerate(code):
        target = re.fullmatch(r"(.*?)0x([0-9a-f]+)", operands.strip())
        if name in ("BRA", "BRA.U", "CALL.REL.NOINC") and target:  # BRA.DIV would be taken if threads had parted
            after[place].append(places[int(target[2], 16)])
        if condition or not (name.startswith(("EXIT", "RET")) or (name.startswith("BRA") and target and not target[1])):
            after[place].append(min(place + 1, len(code) - 1))
    reached = _reached(after, 0, -1)
    for place in reached:
        for other in after[place]:
            before[other].append(place)
    loops: dict[int, set[int]] = {}
    for end in reached:
        for start in after[end]:
            if start < end and end not in _reached(after, 0, start):
                loops[start] = loops.get(start, {start}) | _reached(before, end, start)
    return loops.values()


def _reached(ways: list[list[int]], start: int, closed: int) -> set[int]:
    """Where the ways lead from the start, but for a place that is closed."""
    found, new = {closed}, [start]
    while new:
        place = new.pop()
        if place not in found:
            found.add(place)
            new += ways[place]
    return found - {closed}


def changes(recorded: dict[str, dict[str, Any]], now: dict[str, dict[str, Any]]) -> list[str]:
    """A line for each kernel that is new or gone, or whose loops differ, or that uses more of anything."""
    wrong = []
    for name in {**recorded, **now}:
        before, after = recorded.get(name), now.get(name)
        if before is None or after is None or _differ(before, after):
            wrong.append(f"{name}\n  recorded {before}\n  now      {after}")
    return wrong


def _differ(before: dict[str, Any], after: dict[str, Any]) -> bool:
    loops = before["loops"], after["loops"]
    return (
        any(after[name] > before[name] for name in ("registers", "stack", "float64", "narrow loads"))
        or sum(after["spills"]) > sum(before["spills"])
        or len(loops[0]) != len(loops[1])
        or any(abs(new / old - 1) > TOLERANCE for old, new in zip(*loops, strict=True))
    )


class _Dumper(yaml.SafeDumper):
    """Writes the counts of a kernel in a line."""

    def represent_mapping(self, tag: str, mapping: Any, flow_style: bool | None = None) -> yaml.MappingNode:
        return super().represent_mapping(tag, mapping, "registers" in mapping)


def main() -> None:
    """Command line: compare with the record, or write into it what the Triton at hand makes of the kernels."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_instructions", description=__doc__.splitlines()[0])
    parser.add_argument("--record", action="store_true", help="write the counts down as those to compare with")
    options = parser.parse_args()
    with ProcessPoolExecutor(len(CASES)) as pool:
        now = dict(zip([f"sm_{arch}" for arch in CASES], pool.map(count, CASES, CASES.values()), strict=True))
    record = yaml.safe_load(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    version, number = f"triton {triton.__version__}", sum(map(len, now.values()))
    if options.record:
        record[version] = origin(KERNELS) | now
        write_atomically(RECORD, yaml.dump(record, Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=1000))
        print(f"Written: {RECORD}, {number} kernels of {version}")
        return
    if version not in record:
        sys.exit(f"error: {RECORD} has no counts of {version}; `make gpu_instructions RECORD=1` adds them.")
    if wrong := [f"{arch} {line}" for arch in now for line in changes(record[version][arch], now[arch])]:
        commit = record[version]["commit"][:12]
        sys.exit(
            "\n".join(wrong)
            + f"\nerror: {len(wrong)} kernels of {version} are new or gone, use more registers, stack, "
            f"float64 or narrow loads, or have loops whose length changed by more than {LIMIT}. `git diff {commit} -- "
            f"{KERNELS}` shows what changed. If it is wanted, `make gpu_instructions RECORD=1` records all again."
        )
    print(f"All {number} kernels of {version} are as recorded.")


if __name__ == "__main__":
    main()
