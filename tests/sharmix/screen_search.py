"""A search for a class that screening loses, in rows that are made to lie near its bounds.

python -m tests.sharmix.screen_search 10000000
"""

import sys

import torch
from torch import Tensor

from sharmix._operators import cpu

ROWS, CLASSES, NEAR = 1000, 1040, 40


def worst_case(seed: int, rows: int, classes: int, features: int, q: float) -> tuple[Tensor, Tensor]:
    """Hidden states and weights whose rounding errors add up, with many logits at the edge of the reach 1/(q − 1).

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
    edge = 1 - (1 - 0.02 * torch.rand(NEAR, 1, generator=generator)) / ((q - 1) * (weight[best] @ row))
    near = torch.arange(NEAR) + (best + 1) % (classes - NEAR)
    weight[near] = weight[best] * edge
    step = torch.exp2(weight.abs().log2().floor() - 7)  # between neighbours in bfloat16
    sign = torch.randn(classes, 1, generator=generator).sign()
    sign[near], sign[best] = 1, -1  # the product is too small for them, and too large for the best
    return hidden, weight.bfloat16().float() + 0.499 * step * sign * row.sign()


def lost_classes(hidden: Tensor, weight: Tensor, q: float, product: Tensor | None = None) -> Tensor:
    """Which classes [rows, classes] are within reach of the largest logit, and not in the list of their row.

    A class beyond reach is outside the support for every r >= q. Logits are computed in float64. Those that rounding
    in float32 can take out of reach do not count. `product` is torch's, or another one within the bounds.
    """
    logits = hidden.double() @ weight.double().T
    rounding = 2**-22 * hidden.shape[1] * hidden.norm(dim=1, keepdim=True) * weight.norm(dim=1).max()
    near = logits > logits.amax(1, keepdim=True) - 1 / (q - 1) + rounding
    counts, listed = listed_classes(hidden, weight, None, logits.argmax(1), (q, q, 1.0), product)
    return near & ~listed & (counts >= 0)[:, None]


def listed_classes(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    orders: tuple[float, float, float],
    product: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The number of classes in the list of each row, -1 if it has none, and which they are [rows, classes]."""
    classes = len(weight)
    (rounded, of_hidden), (narrow, of_weight) = cpu.rounded(hidden), cpu.rounded(weight)
    product = rounded @ narrow.T if product is None else product
    layer = hidden, weight, bias, targets
    counts, _, places, _ = cpu.screen(layer, product, (of_hidden, of_weight), orders, classes)
    listed = torch.zeros(len(hidden), classes + 1, dtype=torch.bool)
    listed.scatter_(1, torch.where(torch.arange(classes) < counts[:, None], places.long(), classes), True)
    return counts, listed[:, :-1]


def main(rows: int) -> None:
    lost = screened = 0
    for seed in range(rows // ROWS):
        features, q = (4, 64, 256)[seed % 3], 1.1 + 0.9 * (seed % 7) / 6
        lost += int(lost_classes(*worst_case(seed, ROWS, CLASSES, features, q), q).sum())
        screened += ROWS
        if seed % 500 == 499:
            print(f"{screened:,} rows, {lost} lost classes", flush=True)
    sys.exit(f"{lost} lost classes" if lost else 0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
