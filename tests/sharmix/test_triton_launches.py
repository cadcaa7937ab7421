"""Which kernels the host launches on CUDA: few, and chosen by shape and dtype alone."""

import pytest
import torch

pytest.importorskip("triton")

from sharmix._operators.triton import implementation
from sharmix._operators.triton import launch as launches

FIXED = (1.25, 1.5, 1.0)


def values(rows, classes, dtype=torch.float32):
    return torch.empty(rows, classes, dtype=dtype, device="meta")


SOLVED = [
    (values(4096, 100), FIXED, ["{}_of_rows"]),
    (values(4096, 2048, torch.bfloat16), FIXED, ["{}_of_rows"]),
    (values(4096, 32_000), FIXED, ["{}_of_lanes", "{}_of_rows"]),
    (values(4096, 262_144), FIXED, ["{}_of_lanes", "{}_of_rows"]),
    (values(8, 262_144), FIXED, ["{}_of_rows_together"]),
    (values(9, 262_144), FIXED, ["{}_of_lanes", "{}_of_rows"]),
    (values(9, 1 << 20), FIXED, ["{}_of_rows"]),
    (values(4096, 100, torch.float64), FIXED, ["{}_of_rows_in_float64"]),
    (values(4096, 32_000), (3.0, 3.0, 1.0), ["{}_of_rows_in_float64"]),
    (values(4096, 100), (1.75, 1.25, 1.0), ["{}_of_rows_in_float64"]),
    (values(4096, 100), (torch.ones(1), 1.5, 1.0), ["{}_of_rows", "{}_of_rows_in_float64"]),
    (values(4096, 100), (1.25, 1.5, torch.ones(1)), ["{}_of_rows"]),
]


@pytest.mark.parametrize(("logits", "orders", "expected"), SOLVED)
def test_a_map_and_a_loss(launched, logits, orders, expected):
    implementation.solve(logits, orders, wants_conjugate=False, keeps=True)
    assert launched == [name.format("map") for name in expected]
    launched.clear()
    targets = torch.empty(len(logits), dtype=torch.long, device="meta")
    implementation.class_loss(logits, targets, orders, -100, "mean", slopes="none", keeps="gradient")
    assert launched == ["count_rows", *(name.format("loss") for name in expected), "sum_rows"]


def test_backward_passes(launched):
    p = values(4096, 100)
    implementation.map_backward(p, p, FIXED, "none")
    implementation.scaled(p, torch.empty((), device="meta"))
    assert launched == ["map_backward", "scale_unless_one"]


def test_a_compiled_kernel_is_kept_for_arguments_of_the_same_kind():
    found = []

    class Compiled:
        def __getitem__(self, grid):
            return lambda *arguments: found.append("kept")

    class Kernel:
        __name__ = "kernel"

        def __getitem__(self, grid):
            return lambda *arguments, **options: found.append("searched") or Compiled()

    kernel, memory = Kernel(), torch.zeros(33)
    aligned, other = memory[:16], memory[1:]
    calls = [(aligned, 7), (aligned, 9), (other, 7), (other, 7), (aligned, 16), (aligned, 1)]
    for values, number in 2 * [*calls, (aligned.double(), 7), (aligned, 7.0)]:
        launches.launch(kernel, (1,), (values, (number, None)), {"num_warps": 1}, BLOCK=4)
    launches.launch(kernel, (1,), (aligned, (7, None)), {"num_warps": 1}, BLOCK=8)
    first = ["searched", "kept", "searched", "kept", "searched", "searched", "searched", "searched"]
    assert found == [*first, *["kept"] * 8, "searched"]
