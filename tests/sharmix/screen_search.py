"""A search for a class that screening loses, in rows that are made to lie near its bounds.

python -m tests.sharmix.screen_search 10000000
"""

import sys

import torch
from torch import Tensor

import sharmix
from sharmix._layer_screened import rounded
from sharmix._operators import cpu

ROWS, CLASSES, NEAR = 1000, 1040, 40


def worst_case(seed: int, rows: int, classes: int, features: int, q: float) -> tuple[Tensor, Tensor]:
    """Hidden states and weights whose rounding errors add up, with many logits at the edge of q-entmax's support.

    The weights of a class lie nearly half a step of bfloat16 above or below the rounded ones, all in the direction of
    one row of hidden. For this row the product is then wrong by nearly the norm of the error times that of the row.
    """
    generator = torch.Generator().manual_seed(seed)
    size, spread = (torch.rand(2, generator=generator) * torch.tensor([8.0, 1.5])).tolist()
    hidden = torch.randn(rows, features, generator=generator)
    hidden *= torch.exp2(spread * torch.randn(features, generator=generator))  # some features are larger
    weight = torch.randn(classes, features, generator=generator)
    hidden *= size / (hidden @ weight.T).std(1, keepdim=True)
    row = hidden[seed % rows]
    best = (weight @ row).argmax()
    logits = weight @ row
    threshold = logits[best] - sharmix.entmax(logits, alpha=q)[best] ** (q - 1) / (q - 1)
    near = torch.arange(NEAR) + (best + 1) % (classes - NEAR)
    weight[near] = 4 * torch.randn(NEAR, features, generator=generator)
    below = torch.rand(NEAR, generator=generator) * _most_lost(weight[near], row)
    shift = (threshold - below - weight[near] @ row) / row.square().sum()
    weight[near] += shift[:, None] * row
    sign = torch.randn(classes, 1, generator=generator).sign()
    sign[near], sign[best] = 1, -1  # the product is too small for them, and too large for the best
    rounded = weight.bfloat16().float()
    return hidden, rounded + 0.499 * _step(rounded) * sign * row.sign()


def _step(weight: Tensor) -> Tensor:
    """Between neighbours in bfloat16."""
    return torch.exp2(weight.abs().log2().floor() - 7)


def _most_lost(weight: Tensor, row: Tensor) -> Tensor:
    """What rounding can take off the product of each weight with a row."""
    return 0.499 * _step(weight) @ row.abs()


def lost_classes(hidden: Tensor, weight: Tensor, q: float, product: Tensor | None = None) -> Tensor:
    """Which classes [rows, classes] are in the support of q-entmax, and not in the list of their row.

    The support is computed in float64. Classes that rounding in float32 can take out of it do not count.
    """
    logits = hidden.double() @ weight.double().T
    rounding = 2**-22 * hidden.shape[1] * hidden.norm(dim=1, keepdim=True) * weight.norm(dim=1).max()
    inside = sharmix.entmax(logits, alpha=q) > ((q - 1) * rounding) ** (1 / (q - 1))
    counts, listed = listed_classes(hidden, weight, None, logits.argmax(1), (q, q, 1.0), product)
    return inside & ~listed & (counts >= 0)[:, None]


def listed_classes(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    orders: tuple[float, float, float],
    product: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The number of classes in the list of each row, -1 if it has none, and which they are [rows, classes].

    `product` is torch's, or another one within the bounds.
    """
    classes = len(weight)
    (near_hidden, of_hidden), (near_weight, of_weight) = rounded(hidden), rounded(weight)
    product = near_hidden @ near_weight.T if product is None else product
    layer = hidden, weight, bias, targets
    counts, _, places, _ = cpu.screen(layer, product, (of_hidden, of_weight), orders, classes)
    listed = torch.zeros(len(hidden), classes + 1, dtype=torch.bool)
    listed.scatter_(1, torch.where(torch.arange(classes) < counts[:, None], places.long(), classes), True)
    return counts, listed[:, :-1]


def main(rows: int) -> None:
    lost = screened = 0
    for seed in range(rows // ROWS):
        features, q = (4, 64, 256)[seed % 3], 1.1 + 0.9 * (seed % 7) / 6
        layer = worst_case(seed, ROWS, CLASSES, features, q)
        # Torch's product is slow on a processor without instructions for it: it takes one turn of ten.
        product = (
            torch.mm(*(part.bfloat16().float() for part in (layer[0], layer[1].T))).bfloat16() if seed % 10 else None
        )
        lost += int(lost_classes(*layer, q, product).sum())
        screened += ROWS
        if seed % 500 == 499:
            print(f"{screened:,} rows, {lost} lost classes", flush=True)
    sys.exit(f"{lost} lost classes" if lost else 0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
