"""The CUDA kernels without a GPU: run by Triton's interpreter, and compiled for a GPU that is not here."""

import os
import re
import subprocess
import sys

import pytest
import torch

triton = pytest.importorskip("triton")
tl = triton.language

from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from sharmix._operators import cuda, cuda_long_rows  # noqa: E402

POINTERS = {
    **dict.fromkeys(("q", "r", "temperature", "orders", "states", "sums"), "*fp64"),
    **dict.fromkeys(("conjugates", "losses", "slopes", "grad_parameters", "largest", "tops"), "*fp32"),
    **dict.fromkeys(("targets", "wrong_row"), "*i64"),
    **dict.fromkeys(("indices", "counts"), "*i32"),
}

SHORT = dict.fromkeys(("counts", "tops", "kept", "indices"))  # a row that fits one block has no candidates


def test_what_the_kernels_take():
    """Plain torch computes the rest: float64, q > 2, several maxima, and short or many rows for `cuda_long_rows`."""
    short, long = torch.zeros(3, 7), torch.zeros(64, 65536, device="meta")
    for q, r, expected in ((1.25, 1.5, True), (2.0, 2.0, True), (2.1, 2.1, False), (1.75, 1.25, False)):
        orders = (q, r, 1.0)
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            assert cuda.supports(short.to(dtype), orders) == expected, (q, r, dtype)
            assert cuda_long_rows.supports(long.to(dtype), orders) == expected, (q, r, dtype)
        assert not cuda.supports(short.double(), orders)
        for other in (long.double(), long[:, 1:], torch.zeros(65, 65536, device="meta")):
            assert not cuda_long_rows.supports(other, orders)


@pytest.mark.slow
def test_kernels_agree_with_plain_torch_in_the_interpreter():
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/sharmix/triton_kernels.py"],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert "passed" in done.stdout


def compile_for_hopper(kernel, logits_type, num_warps=1, **constants):
    """The kernel for compute capability 9.0."""
    names = kernel.arg_names
    types = POINTERS | dict.fromkeys(("values", "kept", "logits", "probabilities", "grads", "grad_logits"), logits_type)
    types |= {argument.name: argument.annotation_type for argument in kernel.params if argument.annotation_type}
    signature = {name: "constexpr" if name in constants else types.get(name, "i32") for name in names}
    values = {(place,): constants[name] for place, name in enumerate(names) if name in constants}
    source = ASTSource(fn=kernel, signature=signature, constexprs=values)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": num_warps})


def test_orders_that_are_numbers_keep_their_digits():
    """Without the annotation Triton makes a Python number float32."""
    for kernel in (cuda._find_candidates, cuda._solve, cuda._class_loss, cuda._class_loss_backward, cuda._map_backward):
        types = {argument.name: argument.annotation_type for argument in kernel.params}
        assert [types[order] for order in ("q", "r", "temperature")] == ["fp64"] * 3, kernel


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")
@pytest.mark.parametrize(("logits_type", "compute"), [("*fp32", tl.float64), ("*bf16", tl.float32)])
def test_kernels_compile_for_a_hopper_gpu(logits_type, compute):
    candidates = {"BLOCK": 128}
    row = candidates | {"COMPUTE": compute}
    short = row | SHORT
    for kernel, constants in (
        (cuda._solve, row),
        (cuda._solve, short | {"orders": None}),
        (cuda._solve, short | {"classes": 1}),  # an argument of 1 becomes a constant
        (cuda._class_loss, row | {"SLOPES": True}),
        (cuda._class_loss, short | {"SLOPES": True}),
        (cuda._map_backward, candidates | {"PARAMETERS": True}),
        (cuda._map_backward, candidates | SHORT | {"PARAMETERS": True}),
        (cuda._find_candidates, candidates),
        (cuda._find_candidates, candidates | {"kept": None}),
        (cuda._class_loss_backward, {"BLOCK": 128, "COMPUTE": compute}),
        (cuda_long_rows._partial_sums, {"BLOCK": 128, "COMPUTE": compute}),
        (cuda_long_rows._newton_step, {"SPANS": 32, "COMPUTE": compute}),
    ):
        assert f".entry {kernel.fn.__name__}" in compile_for_hopper(kernel, logits_type, **constants).asm["ptx"]


def stack_bytes(compiled, path):
    """Of each thread: what the assembler found no register for."""
    path.write_bytes(compiled.asm["cubin"])
    tool = triton.knobs.nvidia.cuobjdump.path
    printed = subprocess.run([tool, "-res-usage", path], capture_output=True, text=True, check=True).stdout
    return int(re.search(r"STACK:(\d+)", printed)[1])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")
@pytest.mark.parametrize("classes", [2048, 32000])
def test_the_kernels_spill_no_registers(tmp_path, classes):
    one = {"orders": None, **cuda._launch(classes), **({} if cuda._room(classes) else SHORT)}
    whole = one | {"COMPUTE": tl.float64}
    for kernel, constants in (
        (cuda._solve, whole),
        (cuda._class_loss, whole | {"SLOPES": False}),
        (cuda._class_loss, whole | {"SLOPES": True}),
        (cuda._map_backward, one | {"PARAMETERS": True}),
        (cuda._class_loss_backward, {"num_warps": 1, "BLOCK": cuda._GRADIENT, "orders": None, "COMPUTE": tl.float64}),
        (cuda._find_candidates, {"num_warps": 1, "BLOCK": cuda._SEARCHED, "orders": None}),
        (cuda._find_candidates, {"num_warps": 1, "BLOCK": cuda._SEARCHED, "orders": None, "kept": None}),
    ):
        assert stack_bytes(compile_for_hopper(kernel, "*fp32", **constants), tmp_path / "cubin") == 0, kernel
