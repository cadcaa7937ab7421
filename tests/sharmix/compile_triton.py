"""Compile every CUDA kernel for compute capability 9.0, which needs no GPU, and print their names."""

import triton
from triton import language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from sharmix import _triton, _triton_long_rows

POINTERS = {
    **dict.fromkeys(("q", "r", "temperature", "states", "sums"), "*fp64"),
    **dict.fromkeys(("conjugates", "losses", "slopes", "grad_parameters", "largest"), "*fp32"),
    "targets": "*i64",
}


def compile_for_hopper(kernel, logits_type, **constants):
    names = kernel.arg_names
    pointers = POINTERS | dict.fromkeys(("logits", "probabilities", "grads", "grad_logits"), logits_type)
    signature = {name: "constexpr" if name in constants else pointers.get(name, "i32") for name in names}
    values = {(place,): constants[name] for place, name in enumerate(names) if name in constants}
    source = ASTSource(fn=kernel, signature=signature, constexprs=values)
    triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 1})
    print(kernel.fn.__name__)


if __name__ == "__main__":
    for logits_type, compute in (("*fp32", tl.float64), ("*bf16", tl.float32)):
        row = {"BLOCK": 128, "ONE": True, "COMPUTE": compute}
        compile_for_hopper(_triton._solve, logits_type, **row)
        compile_for_hopper(_triton._class_loss, logits_type, SLOPES=True, **row)
        compile_for_hopper(_triton._solve, logits_type, classes=1, **row)  # an argument of 1 becomes a constant
        compile_for_hopper(_triton._map_backward, logits_type, PARAMETERS=True, BLOCK=128)
        compile_for_hopper(_triton._class_loss_backward, logits_type, BLOCK=128, COMPUTE=compute)
        compile_for_hopper(_triton_long_rows._partial_sums, logits_type, BLOCK=128, COMPUTE=compute)
        compile_for_hopper(_triton_long_rows._newton_step, logits_type, SPANS=32, COMPUTE=compute)
