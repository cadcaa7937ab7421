"""Orders and temperatures of any size: the right p and loss, or one error that names the order; never NaN."""

import itertools
import math
import sys

import pytest
import torch

import sharmix
from tests.sharmix import reference
from tests.sharmix.cases import every_case

pytestmark = pytest.mark.usefixtures("each_solver")


def rows(classes):
    """Logits where the scale of the solution is as large as it gets, and where it is as small."""
    z = torch.randn(classes, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    yield "tied", torch.zeros(classes, dtype=torch.float64)
    yield "normal", z
    yield "large", 1e30 * z
    yield "denormal", 1e-320 * z
    yield "nearly tied", 1e-12 * z
    yield "masked", torch.where(torch.arange(classes) < 2, z, -torch.inf) if classes > 2 else z


@pytest.mark.medium
@pytest.mark.parametrize("classes", [1, 10, 2000])
def test_p_is_on_the_simplex_and_the_loss_no_nan(classes):
    largest_r = 1 + 500 / math.log(max(2, classes))
    with every_case() as case:
        for (name, z), q, dtype in itertools.product(rows(classes), (1.0, 1.25, 3.0, 1000.0), (32, 64)):
            for r, temperature in itertools.product((2.0, 0.999 * largest_r), (1e-30, 1e30)):
                with case(logits=name, q=q, r=r, temperature=temperature, dtype=dtype):
                    values = z.float() if dtype == 32 else z
                    p = sharmix.sharmix(values, q, r, temperature)
                    assert abs(p.sum().item() - 1) < 1e-5
                    if name == "tied":
                        torch.testing.assert_close(p, torch.full_like(p, 1 / classes))
                    assert sharmix.fenchel_young_loss(values, torch.tensor(0), q, r, temperature) >= 0


@pytest.mark.parametrize(("q", "r"), [(1.25, 50.0), (2.0, 100.0), (1.0, 30.0), (8.0, 8.0), (3.0, 60.0)])
def test_large_orders_give_the_numbers_of_fifty_digits(q, r):
    z = torch.tensor([[1.0, 0.9, 0.5, -1.0], [1e-3, 0.0, 2e-4, -1e-3]], dtype=torch.float64)
    with every_case() as case:
        for row, p in zip(z.tolist(), sharmix.sharmix(z, q, r).tolist(), strict=True):
            with case(row=row):
                assert reference.worst_error(p, reference.sharmix(row, q, r)) < 1e-12


def test_the_least_temperature_puts_all_on_the_largest_logit_and_a_smaller_one_is_refused():
    z = torch.tensor([[2.0, 1.0, -1.0]])
    with every_case() as case:
        for q, r in ((1.0, 1.0), (1.5, 1.5), (2.0, 2.0), (1.5, 0.5), (3.0, 3.0)):
            with case(q=q, r=r):
                assert sharmix.sharmix(z, q, r, sys.float_info.min).tolist() == [[1.0, 0.0, 0.0]]
                assert sharmix.fenchel_young_loss(z, torch.tensor([0]), q, r, sys.float_info.min) == 0
        for temperature in (5e-324, 5.5e-309, torch.full((1, 1), 5e-309, dtype=torch.float64)):
            said = r"temperature=5\S+ is not allowed; .* >= 2\.22507e-308"
            with case(temperature=temperature), pytest.raises(ValueError, match=said):
                sharmix.sharmix(z, temperature=temperature)


def test_more_classes_than_a_kernel_can_count_are_refused():
    z = torch.zeros(1).expand(2**31)  # one number in memory
    for door in (sharmix.sharmix, sharmix.sparsemax, torch.vmap(sharmix.entmax)):
        with pytest.raises(ValueError, match=r"2147483648 classes are not allowed; they must be at most 2147483647"):
            door(z if door is sharmix.sharmix else z[None])
    with pytest.raises(ValueError, match="2147483648 classes are not allowed"):
        sharmix.fenchel_young_loss(z, torch.tensor(0))


def test_an_order_that_is_too_large_is_refused_by_its_name():
    z, y = torch.zeros(3, 5000), torch.zeros(3).long()
    with every_case() as case:
        for function in (sharmix.sharmix, lambda z, **given: sharmix.fenchel_young_loss(z, y, **given)):
            for r in (100.0, 1e300, torch.tensor(100.0), torch.full((3, 1), 1e300, dtype=torch.float64)):
                with case(r=r), pytest.raises(ValueError, match=r"r=.* is not allowed with 5000 classes"):
                    function(z, r=r)
            for q in (1001.0, torch.tensor(1e30)):
                with case(q=q), pytest.raises(ValueError, match=r"q=.* is not allowed; .* at most 1000"):
                    function(z, q=q)
        with case(function="entmax"), pytest.raises(ValueError, match=r"alpha=100000\.0 is not allowed"):
            sharmix.entmax(z, alpha=1e5)


@pytest.mark.parametrize("q", [1.5, 3.0, 30.0, 100.0])
def test_the_gradient_of_large_orders_is_finite(q):
    z = torch.randn(2, 500, generator=torch.Generator().manual_seed(0)).requires_grad_()
    for r in (2.0, 5.0):
        p = sharmix.sharmix(z, q, r)
        (gradient,) = torch.autograd.grad((p * z.detach()).sum(), z)
        assert gradient.isfinite().all()


def test_the_gradient_of_a_sum_is_zero_where_the_slopes_of_tied_rows_leave_single_precision():
    for rows, classes, r in ((1, 1000, 20.0), (16, 10, 200.0), (1, 1000, 70.0)):
        z = torch.zeros(rows, classes, requires_grad=True)
        (gradient,) = torch.autograd.grad(sharmix.sharmix(z, 1.25, r).sum(), z)
        assert not gradient.any()
