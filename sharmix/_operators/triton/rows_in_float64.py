import triton
import triton.language as tl


@triton.jit
def map_of_rows_in_float64(logits, out, orders, rows, classes, BLOCK: tl.constexpr, ROUGH: tl.constexpr):
    pass


@triton.jit
def loss_of_rows_in_float64(logits, labels, out, orders, rows, classes, BLOCK: tl.constexpr, ROUGH: tl.constexpr):
    pass
