"""The map, its loss and the output layer on CUDA, in Triton; one file a family of kernels.

`equation` is what all kernels share. `rows` solve a whole row each, `lanes` the largest logits of a sparse row, and
several programs solve a row `together`. `solving` chooses between them, by shape and dtype alone. `layer`
computes an output layer with its loss, by `lists` of errors and `products`; its `supports` tell what is fast.
`attention` launches `attention_forward` and `attention_backward`, which solve rows that nobody stores.

- A **smooth** row is one for whose orders float32 is enough (`equation.is_smooth`). **Rough** rows, all others, are
  solved in float64 (`rows_in_float64`).
- A row is **left** by a kernel that cannot prove its solution, to the kernel that is launched next.
- The **room** is the number of places of a list: of a row's support, or of its nonzero errors.
- A **piece** is a part of a class's errors, which one program sums.
"""
