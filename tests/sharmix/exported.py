"""Models as onnxruntime runs them, and how exact the exported map is.

``python -m tests.sharmix.exported`` measures it anew and writes `results/benchmarks/export.md`.
"""

import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import onnxscript
import torch
from torch import Tensor, nn
from torch.export import Dim

import sharmix

TABLE = Path("results/benchmarks/export.md")
GOAL = 5e-7
FIRST_ORDERS = (1.0, 1 + 1e-6, 1.01, 1.1, 1.25, 1.5, 1.75, 2.0)
SCALES = (0.01, 0.1, 1.0, 10.0, 100.0)
CLASSES = (1, 2, 3, 10, 100, 1_000, 32_000)
ROWS = 8

KINDS = ("normal", "tied", "a spike", "a spike over ties", "heavy tails")


class Exported:
    """A model after `torch.onnx.export`, called with tensors; by default the first and the last dimension vary."""

    def __init__(self, model: nn.Module, *inputs: Tensor, shapes: tuple[Any, ...] | None = None) -> None:
        shapes = shapes or ({0: Dim("batch"), inputs[0].dim() - 1: Dim("classes")},)
        program = torch.onnx.export(model.eval(), inputs, dynamo=True, dynamic_shapes=shapes, verbose=False)
        assert program is not None
        self.proto = program.model_proto
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(self.proto.SerializeToString(), options)

    def __call__(self, *inputs: Tensor) -> Any:
        names = [one.name for one in self._session.get_inputs()]
        feed = {name: tensor.detach().numpy() for name, tensor in zip(names, inputs, strict=True)}
        outputs = [torch.from_numpy(output) for output in self._session.run(None, feed)]
        return outputs[0] if len(outputs) == 1 else outputs


class MapOfRows(nn.Module):
    """`sharmix.sharmix` with q, r and T₀ of each row as inputs [rows, 1]."""

    def forward(self, logits: Tensor, q: Tensor, r: Tensor, temperature: Tensor) -> Tensor:
        return sharmix.sharmix(logits, q, r, temperature)


def exported_map() -> Exported:
    orders = (torch.full((3, 1), order) for order in (1.5, 1.75, 1.0))
    shapes = ({0: Dim.DYNAMIC, 1: Dim.DYNAMIC}, *[{0: Dim.DYNAMIC}] * 3)
    return Exported(MapOfRows(), torch.randn(3, 5), *orders, shapes=shapes)


def logits(kind: str, classes: int, scale: float, generator: torch.Generator) -> Tensor:
    """Float32 logits [ROWS, classes]."""
    z = torch.randn(ROWS, classes, generator=generator)
    if kind == "tied":
        z = z.round()
    elif kind == "a spike":
        z[:, 0] += 2 + math.log(classes) * torch.rand(ROWS, generator=generator)
    elif kind == "a spike over ties":
        z = torch.zeros_like(z)
        z[:, 0] = torch.linspace(0, 12, ROWS)
    elif kind == "heavy tails":
        z = torch.tan(3.1 * (torch.rand(ROWS, classes, generator=generator) - 0.5))
    return scale * z


def second_orders(q: float) -> Iterator[float]:
    """r for q, both exact in float32: on the border of the concave region, α-entmax, and beyond."""
    border = torch.tensor(2 - 1 / q)
    yield border.item() if border.item() >= 2 - 1 / q else border.nextafter(torch.tensor(3.0)).item()
    yield from (torch.tensor(r).item() for r in (q, (q + 2) / 2, 2.0, 3.0))


def worst_error(exported: Exported, q: float, r: float, z: Tensor, temperature: float = 1.0) -> float:
    """Beside the map of the same logits in float64; NaN if there is one."""
    found = exported(z, *(torch.full((len(z), 1), order) for order in (q, r, temperature)))
    return (found - sharmix.sharmix(z.double(), q, r, temperature)).abs().max().item()


def _table(exported: Exported) -> str:
    generator = torch.Generator().manual_seed(0)
    lines = ["| q | " + " | ".join(KINDS) + " |", "|---" * (len(KINDS) + 1) + "|"]
    for q in (torch.tensor(q).item() for q in FIRST_ORDERS):
        worst = (
            max(
                worst_error(exported, q, r, logits(kind, classes, scale, generator))
                for classes in CLASSES
                for scale in SCALES
                for r in second_orders(q)
            )
            for kind in KINDS
        )
        lines.append(f"| {q:.7g} | " + " | ".join(f"{error:.0e}" for error in worst) + " |")
    return "\n".join(lines)


def _milliseconds(exported: Exported, rows: int, classes: int) -> float:
    inputs = torch.randn(rows, classes), *(torch.full((rows, 1), order) for order in (1.25, 1.5, 1.0))
    times = []
    for _ in range(10):
        start = time.perf_counter()
        exported(*inputs)
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


def main() -> None:
    torch.set_num_threads(1)
    exported = exported_map()
    packages = ", ".join(
        f"{package.__name__} {package.__version__}" for package in (torch, onnx, onnxscript, onnxruntime)
    )
    size = f"{len(exported.proto.graph.node)} nodes, {len(exported.proto.SerializeToString()) / 1e3:.0f} kB"
    calls = ", ".join(
        f"{rows} × {n}: {_milliseconds(exported, rows, n):.1f} ms" for rows, n in ((64, 100), (64, 1_000))
    )
    TABLE.write_text(
        "# The exported map\n\n"
        "Largest absolute error of float32 probabilities from onnxruntime beside the float64 map, over "
        f"{', '.join(f'{n:,}' for n in CLASSES)} classes, logits times {', '.join(f'{s:g}' for s in SCALES)}, and "
        "r = 2 − 1/q, q, (q + 2)/2, 2 and 3.\n\n"
        f"{_table(exported)}\n\n"
        f"One map with q, r and T₀ for each row: {size}. Time of one call on one core: {calls}.\n\n"
        f"{packages}. Repeat: `python -m tests.sharmix.exported`.\n"
    )
    print(TABLE.read_text())


if __name__ == "__main__":
    main()
