"""The kernels for rows that float32 cannot solve, by Triton's interpreter, beside plain torch in float64.

`TRITON_INTERPRET=1 python -m pytest tests/sharmix/triton_rows_in_float64.py`, as `triton_kernels.py`.
"""

import pytest
import torch

import sharmix
from sharmix._operators.triton import rows_in_float64
from sharmix._operators.triton.equation import Orders
from sharmix._operators.triton.outputs import Labels, LossOutputs, MapOutputs
from tests.sharmix.cases import for_every
from tests.sharmix.interpreter import patch_the_language_once_a_launch  # noqa: F401

SMOOTH = [(1.0, 1.7), (1.25, 1.5), (2.0, 2.0), (1.3, 40.0)]
SEVERAL_MAXIMA = [(1.75, 1.25), (1.9, 1.2), (2.0, 1.3), (1.5, 1.1), (1.5, 4 / 3 - 1e-6)]
STEEP = [(2.2, 2.2), (3.0, 3.0), (5.0, 5.0), (20.0, 2.0)]
EVERY_ORDER = SMOOTH + SEVERAL_MAXIMA + STEEP
pytestmark = pytest.mark.filterwarnings("ignore")  # the interpreter's own, on NaN and on NumPy's scalars


def columns(orders):
    return [torch.tensor(values, dtype=torch.float64) for values in zip(*orders, strict=True)]


def normal(classes, scale):
    return scale * torch.randn(classes, generator=torch.Generator().manual_seed(classes), dtype=torch.float64)


def solved(z, orders, targets=None, rough=False, filled_with=torch.nan):
    """p and the conjugate, or with targets loss, gradient and slopes; of a row for each (q, r, T₀)."""
    rows, classes = z.shape
    wide = torch.promote_types(z.dtype, torch.float32)
    launch = {"rows": rows, "classes": classes, "BLOCK": min(1024, max(1, classes)), "ROUGH": rough}
    launch["BLOCK"] = 1 << (launch["BLOCK"] - 1).bit_length()
    at = Orders(0.0, 0.0, 0.0, *columns(orders), int(len(orders) > 1))
    matrix, values = torch.full_like(z, filled_with), torch.full([rows], filled_with, dtype=wide)
    if targets is None:
        out = MapOutputs(matrix, values, torch.empty(rows, dtype=torch.int32), None, None)
        rows_in_float64.map_of_rows_in_float64[(2,)](z, out, at, **launch)
        return matrix, values
    states, slopes = torch.empty(rows, 4, dtype=torch.float64), torch.empty(rows, 3, dtype=wide)
    out = LossOutputs(values, matrix, states, slopes)
    rows_in_float64.loss_of_rows_in_float64[(2,)](z, Labels(targets, -100, None), out, at, **launch)
    return values, matrix, slopes


def expected(z, orders, targets):
    """p and conjugate; loss, gradient and slopes."""
    z = z.double().requires_grad_()
    at = [order.unsqueeze(-1).requires_grad_() for order in columns(orders)]
    with sharmix.plain_torch():
        p = sharmix.sharmix(z, *at)
        loss = sharmix.fenchel_young_loss(z, targets, *at, reduction="none")
        gradient, *slopes = torch.autograd.grad(loss.sum(), [z, *at])
    conjugate = loss + z.gather(-1, targets.unsqueeze(-1)).squeeze(-1) - z.amax(-1)
    return (p.detach(), conjugate.detach()), (loss.detach(), gradient, torch.cat(slopes, -1))


def assert_is_that_of_plain_torch(z, orders):
    targets = torch.arange(len(z)) % z.shape[-1]
    of_map, of_loss = expected(z, orders, targets)
    digits = {torch.float64: 1e-13, torch.float32: 3e-7}.get(z.dtype, 1e-2)
    for found, right in ((solved(z, orders)[:2], of_map), (solved(z, orders, targets), of_loss)):
        torch.testing.assert_close([value.double() for value in found], list(right), rtol=digits, atol=digits)


@pytest.mark.parametrize(("classes", "scale"), [(1, 2.0), (2, 100.0), (3, 2.0), (10, 0.01), (100, 2.0), (3000, 2.0)])
def test_every_order_in_float64(classes, scale):
    orders = [(q, r, 1.0) for q, r in (EVERY_ORDER[::3] if classes == 3000 else EVERY_ORDER)]
    assert_is_that_of_plain_torch(normal(classes, scale).expand(len(orders), -1).contiguous(), orders)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_logits_of_fewer_digits(dtype):
    orders = [(q, r, 0.7) for q, r in SEVERAL_MAXIMA[:1] + STEEP]
    assert_is_that_of_plain_torch(normal(20, 0.3).expand(len(orders), -1).to(dtype).contiguous(), orders)


@for_every("q, r", [(1.75, 1.25), (20.0, 2.0)])
def test_ties_and_logits_of_minus_infinity_and_one_triple_for_all_rows(q, r):
    rows = torch.tensor([[0.0] * 5, [1.0, 1.0, 0.9, -3.0, 1.0], [-torch.inf, 2.0, 1.9, 1.0, -torch.inf]]).double()
    targets = torch.tensor([0, 1, 2])
    (p, _), (loss, gradient, slopes) = expected(rows, [(q, r, 2.0)] * 3, targets)
    torch.testing.assert_close(solved(rows, [(q, r, 2.0)])[0], p, rtol=1e-13, atol=1e-13)
    found = solved(rows, [(q, r, 2.0)], targets)
    torch.testing.assert_close(found, (loss, gradient, slopes), rtol=1e-13, atol=1e-13)


def assert_map_is_that_of_plain_torch(z, orders):
    (p, conjugate), _ = expected(z, orders, torch.zeros(len(z)).long())
    torch.testing.assert_close(solved(z, orders)[:2], (p, conjugate), rtol=1e-13, atol=1e-13)


def test_the_best_of_two_maxima_just_beside_the_jump():
    z = torch.tensor([[a, *[0.0] * 9] for a in (1.34, 1.35)], dtype=torch.float64)
    assert_map_is_that_of_plain_torch(z, [(1.75, 1.25, 1.0)] * 2)


def test_the_best_of_several_roots_between_knots():
    """At each knot the slope is infinite, and between knots g may fall."""
    assert_map_is_that_of_plain_torch(normal(3000, 2.0).topk(12).values.unsqueeze(0), [(2.5, 1.2, 1.0)])


def test_a_weight_too_small_for_float64_has_its_probability():
    p, _ = solved(torch.tensor([[0.0, -0.0007]], dtype=torch.float64), [(1000.0, 3.0, 1.0)])
    torch.testing.assert_close(p[0, 1].item(), 0.30020007625823478339, rtol=1e-12, atol=0)  # by 40 digits


def test_where_rough_smooth_rows_are_left():
    orders = [(q, r, 1.0) for q, r in [(1.25, 1.5), (1.75, 1.25), (2.0, 2.0), (2.2, 2.2), (torch.nan, 1.0)]]
    z = normal(10, 1.0).expand(5, -1).contiguous()
    for matrix in (
        solved(z, orders, rough=True, filled_with=7.0)[0],
        solved(z, orders, torch.zeros(5).long(), rough=True, filled_with=7.0)[1],
    ):
        assert (matrix == 7).all(-1).tolist() == [True, False, True, False, True]


def test_rows_that_are_undefined_end_as_nan_and_ignored_rows_as_0():
    finite = [0.0, 1.0, 0.5]
    z = torch.tensor([[0.0, torch.nan, 1.0], [torch.inf, 0.0, 1.0], [-torch.inf] * 3, finite]).double()
    for q, r in [(1.75, 1.25), (3.0, 3.0)]:
        p, conjugates = solved(z, [(q, r, 1.0)] * 4)
        assert p.isnan().all(-1).tolist() == conjugates.isnan().tolist() == [True, True, True, False]
        losses, gradients, _ = solved(z, [(q, r, 1.0)] * 4, torch.tensor([0, -100, 1, 3]))
        assert losses.isnan().tolist() == gradients.isnan().all(-1).tolist() == [True, False, True, True]
        assert losses[1] == gradients[1].abs().sum() == 0
    wrong = [(0.9, 1.0, 1.0), (1001.0, 3.0, 1.0), (3.0, 0.0, 1.0), (3.0, 1e6, 1.0), (3.0, 3.0, -1.0), (torch.nan,) * 3]
    p, conjugates = solved(torch.tensor([finite] * len(wrong)).double(), wrong)
    assert p.isnan().all()
    assert conjugates.isnan().all()
