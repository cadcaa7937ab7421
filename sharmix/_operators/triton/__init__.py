"""The map, its loss and the output layer on CUDA, in Triton; one file a family of kernels.

`equation` is what all kernels share. `rows` solve a whole row each, `lanes` the largest logits of a sparse row, and
several programs solve a row `together`. `solving` chooses between them, by shape and dtype alone. `layer`
computes an output layer with its loss, by `lists` of errors and `products`; its `supports` tell what is fast.
"""
