"""The loss of an output layer whose logits are screened by a product in bfloat16: docs/math.md, section 9.

A class far below the largest logit has the probability and the gradient 0. The product shows which classes can be near
enough. Their logits, the loss and all gradients are then those of float32.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.linalg import vector_norm

from sharmix._layer_in_blocks import LayerLoss, LayerSums, LossOfBlock, OutputLayer, logits_in_parts
from sharmix._operators import cpu
from sharmix._operators.backend import backend
from sharmix._operators.orders import Orders, largest
from sharmix._private_torch import is_plain_tensor
from sharmix._targets import checked_classes

_BLOCK_BYTES = 1 << 19  # of float32, which stays in the caches
# With fewer rows, dense ones lose more, by rounding the weight in vain, than sparse ones gain (timed on a Zen 4 core).
_LEAST_ROWS, _LEAST_CLASSES = 256, 4096
# Places, from 0 to 1, of the rows that show whether screening pays. At even distances all could be the first words of
# sequences, which are the hardest to predict. No earlier call decides, so that a step can be repeated.
_FIRST = [(5**0.5 - 1) / 2 * number % 1 for number in range(16)]
_PART_BYTES = 1 << 25  # the size of a part of the product
_SPARSE = 1 / 16  # the share of the classes for which the list of a row has room
_UNLISTED = 0.25  # the share of rows without a list above which the rest goes without screening


def has_bfloat16() -> bool:
    """Whether torch's products in bfloat16 use instructions that the processor has for them."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    capabilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()  # which torch 2.10 may lack
    return any(capabilities.get(name) for name in ("amx_bf16", "avx512_bf16", "bf16", "sve_bf16"))


def screening_may_pay(layer: OutputLayer) -> bool:
    """Whether screening may save time: for a large layer in float32, on a processor that is made for bfloat16."""
    hidden, weight, bias, _ = layer
    if len(hidden) < _LEAST_ROWS or len(weight) < _LEAST_CLASSES or backend(hidden.device) != "c++":
        return False
    parts = [hidden, weight] if bias is None else [hidden, weight, bias]
    is_plain = all(part.dtype is torch.float32 and is_plain_tensor(part) for part in parts)
    return is_plain and has_bfloat16()


def screened_loss(
    loss: LossOfBlock,
    orders: Orders,
    ignore_index: int,
    sparse_grad: bool,
    layer: OutputLayer,
    wanted: Sequence[bool],
    parameters: Sequence[Tensor],
) -> LayerLoss:
    """As `loss_in_blocks`, for SharMiX's loss with these orders.

    Rows with many classes near the largest logit are computed as there, and so are all that follow many such rows.
    """
    hidden, weight, bias, targets = layer
    weight, bias = weight.contiguous(), None if bias is None else bias.contiguous()
    layer = OutputLayer(hidden, weight, bias, targets)
    checked_classes(targets, len(weight), ignore_index)
    sums = LayerSums(loss, layer, wanted, parameters, sparse_grad)
    rest = targets.ne(ignore_index).nonzero().squeeze(1)
    rest = _add_screened(sums, [largest(order) for order in orders], layer, rest)  # each has one value
    for some, logits in logits_in_parts(hidden[rest], weight, bias):
        sums.add(rest[some], logits)
    return sums.collected()


def list_room(classes: int) -> int:
    """The room for the list of a row; a row that needs all of it gets no list."""
    return int(_SPARSE * classes)


def rounded(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """A float32 matrix [rows, features] in bfloat16, and bounds [2, rows]: the norms of the errors and of the result.

    The first bound includes the errors of sums of products with the rows.
    """
    result, features = matrix.bfloat16(), matrix.shape[1]
    block = matrix.new_empty(max(1, _BLOCK_BYTES // (4 * max(1, features))), features)
    parts = zip(torch.split(matrix, len(block)), torch.split(result, len(block)), strict=True)
    error = torch.cat([vector_norm(torch.sub(*part, out=block[: len(part[0])]), dim=1) for part in parts])
    of_sums = (features + 4) * 2.0**-22  # relative to the norms: in any order, rounded to nearest or to odd
    least = features * 2.0**-60  # squares of smaller numbers may be 0, and so may be their bfloat16
    error = error * (1 + of_sums) + least
    norm = (vector_norm(matrix, dim=1) + error) * (1 + of_sums) + least
    return result, torch.stack([error + of_sums * (error + norm), norm])


def _add_screened(sums: LayerSums, orders: Sequence[float], layer: OutputLayer, rows: Tensor) -> Tensor:
    """Add those of the rows that have few classes near the largest logit; returns the others."""
    weight, norms_of_weight = rounded(layer.weight)
    room, rest = list_room(len(weight)), [rows[:0]]
    places = rows.new_tensor([int(place * len(rows)) for place in _FIRST])
    first = torch.isin(torch.arange(len(rows), device=rows.device), places)
    parts = [rows[first], *torch.split(rows[~first], max(1, _PART_BYTES // (2 * len(weight))))]
    while parts and len(parts[0]):
        some = parts.pop(0)
        hidden = layer.hidden[some]
        narrow, norms = rounded(hidden)
        part = hidden, layer.weight, layer.bias, layer.targets[some]
        counts, logits, classes, own = cpu.screen(part, narrow @ weight.T, (norms, norms_of_weight), orders, room)
        listed, most = counts > 0, int(counts.max())
        if most > 0:
            sums.add_listed(some[listed], logits[listed, :most], classes[listed, :most], own[listed])
        rest.append(some[~listed])
        if len(rest[-1]) > _UNLISTED * len(some):
            break
    return torch.cat([*rest, *parts])
