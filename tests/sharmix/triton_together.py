"""Kernels whose programs wait for each other: each program in a process with Triton's interpreter, over shared memory.

`test_triton.py` runs this file in a process of its own: `TRITON_INTERPRET=1 python -m tests.sharmix.triton_together`.
It prints the largest errors of p, loss, gradient and slopes for each case.
"""

import itertools
import json
import os

import torch
from torch import multiprocessing
from triton.runtime import interpreter

import sharmix
from sharmix._operators.triton import solving, together
from sharmix._operators.triton.outputs import Labels, LossOutputs, MapOutputs

PROGRAMS, SPAN = 4, 1024
CASES = [*itertools.product([(1.25, 1.5), (1.3, 1.4), (2.0, 2.0)], [2.0, 0.05])]


def run_one_program(kernel, arguments, constants, program):
    """Run one of the programs, where the interpreter would run one after the other."""
    torch.set_num_threads(1)
    builder = interpreter.interpreter_builder
    set_grid_idx, begun = builder.set_grid_idx, []

    def only_this_one(*_):
        if begun:
            os._exit(0)  # the next program of the grid, which is another process
        begun.append(True)
        set_grid_idx(program, 0, 0)

    builder.set_grid_idx = only_this_one
    kernel[(PROGRAMS,)](*arguments, **constants)


def run(kernel, *arguments, q):
    numbers = torch.zeros(1, together.NUMBERS_OF_PROGRAM, PROGRAMS).share_memory_()
    constants = {"BETA": solving.beta_of(q), "BLOCK": SPAN, "PROGRAMS": PROGRAMS}
    context = multiprocessing.get_context("fork")
    given = kernel, (*arguments[:-1], numbers, arguments[-1]), constants
    processes = [context.Process(target=run_one_program, args=(*given, program)) for program in range(PROGRAMS)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    ended = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
    assert ended == [0] * PROGRAMS, ended


def shared(*shape, dtype=torch.float32):
    return torch.empty(shape, dtype=dtype).share_memory_()


def errors(q, r, scale, classes=3000):
    z = (scale * torch.randn(1, classes, generator=torch.Generator().manual_seed(0))).share_memory_()
    y = torch.tensor([7]).share_memory_()
    p, gradient, loss, slopes = shared(1, classes), shared(1, classes), shared(1), shared(1, 3)
    states, tops = shared(1, 4, dtype=torch.float64), shared(1, dtype=torch.int32)
    numbers = solving.orders_for_kernels((q, r, 1.0), z)
    run(together.map_of_rows_together, z, MapOutputs(p, None, tops, None, None), numbers, classes, q=q)
    labels, out = Labels(y, -100, None), LossOutputs(loss, gradient, states, slopes)
    run(together.loss_of_rows_together, z, labels, out, numbers, classes, q=q)
    orders = [torch.full((1, 1), value, dtype=torch.float64, requires_grad=True) for value in (q, r, 1.0)]
    wide = z.double().requires_grad_()
    exact = sharmix.fenchel_young_loss(wide, y, *orders, reduction="none")
    by_logits, *by_orders = torch.autograd.grad(exact.sum(), [wide, *orders])
    assert tops.item() == z.argmax()
    pairs = (p, sharmix.sharmix(wide, q, r)), (gradient, by_logits), (loss, exact), (slopes, torch.cat(by_orders, -1))
    return [(found - expected).abs().max().item() for found, expected in pairs]


if __name__ == "__main__":
    print(json.dumps([errors(q, r, scale) for (q, r), scale in CASES]))
