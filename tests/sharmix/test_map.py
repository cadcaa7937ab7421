"""The map: its accuracy, its identities and its refusals."""

import itertools
import math
import time

import entmax
import pytest
import torch

import sharmix
from tests.sharmix import accuracy, reference
from tests.sharmix.cases import assert_errors_within, every_case

pytestmark = pytest.mark.usefixtures("each_build")

SMALL = [case for size in (1, 2, 3, 10, 100) for case in accuracy.sample(size, 20)]
LARGE = [
    accuracy.Case(1.25, 1.5, 1000, 1.0, 0),
    accuracy.Case(1 + 1e-12, 2.0, 1000, 10.0, 1),
    accuracy.Case(3.0, 1.0, 1000, 1e-3, 2),
    accuracy.Case(1.5, 1.25, 1000, 3.0, 3),
    accuracy.Case(1.5, 1.75, 32_000, 1.0, 4),
]


def tensor(values, dtype=torch.float64):
    return torch.tensor(values, dtype=dtype)


@pytest.mark.parametrize("dtype", accuracy.GOALS, ids=str)
@pytest.mark.parametrize(
    "cases",
    [SMALL[::3], *(pytest.param(cases, marks=pytest.mark.medium) for cases in (SMALL, LARGE))],
    ids=["a third", "small", "large"],
)
def test_error_against_fifty_digits(cases, dtype):
    errors = {case: accuracy.absolute_error(case, dtype) for case in cases}
    assert_errors_within(errors, accuracy.GOALS[dtype])


@pytest.mark.parametrize("dtype", [torch.bfloat16, pytest.param(torch.float16, marks=pytest.mark.medium)], ids=str)
def test_half_precision_costs_its_own_rounding_only(dtype):
    errors = {case: accuracy.rounding_error(case, dtype) for case in SMALL[::3]}
    assert_errors_within(errors, 1)


ABOVE_2 = [(2.2, 1.6), (2.25, 2.25), (2.5, 2.5), (3.0, 1.7), (3.0, 3.0), (4.0, 2.0)]


@pytest.mark.parametrize(("q", "r"), [(1.25, 1.5), (2.0, 2.0), *ABOVE_2])
def test_a_class_that_has_just_joined_the_support_costs_no_digits(q, r):
    assert_errors_within(accuracy.errors_of_small_classes(q, r), 1e-12)


@pytest.mark.medium
def test_larger_orders_give_no_fewer_zeros():
    z = torch.randn(20, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    orders = torch.linspace(1, 3, 9).tolist()
    for fixed in orders:
        for grid in ([(one, fixed) for one in orders], [(fixed, one) for one in orders]):
            sizes = torch.stack([sharmix.support_size(sharmix.sharmix(z, q, r)) for q, r in grid])
            assert (sizes.diff(dim=0) <= 0).all(), grid


@pytest.mark.parametrize("dtype", accuracy.GOALS, ids=str)
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_no_oracle_is_closer_to_the_truth(dtype, offset):
    for name, theirs, ours in accuracy.oracle_errors(dtype, offset, size=30):
        assert ours <= accuracy.GOALS[dtype], name
        assert ours <= theirs + accuracy.GOALS[dtype] / 10, name


@pytest.mark.parametrize("alpha", [1.5, 2.0])
@pytest.mark.parametrize("temperature", [1.0, 1e-3])
def test_two_classes_are_exact_to_the_last_digit(alpha, temperature):
    edge = 1 / (alpha - 1)  # the distance of the logits from which on one class has all
    distances = [0.0, 1e-12, 0.3, edge - 1e-3, edge - 1e-9, math.nextafter(edge, 0), edge, math.nextafter(edge, 9), 1e9]
    errors = {}
    for offset, distance in itertools.product([0.0, -7.3], [sign * one for one in distances for sign in (1, -1)]):
        row = [offset + temperature * distance, offset]
        p = sharmix.sharmix(tensor(row), alpha, alpha, temperature=temperature)
        errors[offset, distance] = reference.worst_error(p.tolist(), reference.sharmix(row, alpha, alpha, temperature))
    assert_errors_within(errors, 1e-15)
    tied = sharmix.sharmix(tensor([0.3, 0.3]), alpha, alpha, temperature=temperature)
    assert tied.tolist() == [0.5, 0.5]


@pytest.mark.parametrize("alpha", [1.5, 2.0])
@pytest.mark.parametrize("dtype", accuracy.GOALS, ids=str)
def test_two_classes_are_those_of_a_row_with_a_third_one_masked(alpha, dtype):
    values = [-math.inf, -1e30, -3.0, -0.4, 0.0, 0.5, 1e30, math.inf, math.nan]
    z = torch.cartesian_prod(tensor(values, dtype), tensor(values, dtype)).requires_grad_()
    masked = torch.cat([z, torch.full_like(z[:, :1], -math.inf)], -1)
    pairs, triples = (sharmix.entmax(rows, alpha=alpha) for rows in (z, masked))
    grad = torch.randn(len(z), 2, dtype=dtype, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(pairs, triples[:, :2], equal_nan=True)
    of_pairs, of_triples = (torch.autograd.grad((p[:, :2] * grad).sum(), z)[0] for p in (pairs, triples))
    torch.testing.assert_close(of_pairs, of_triples, equal_nan=True)


def test_outside_the_concave_region_the_global_maximiser_is_returned():
    errors = {a: accuracy.error_of_row([a] + [0.0] * 9, 1.75, 1.25) for a in (0.5, 1.3, 1.34, 1.36, 1.4, 3.0)}
    assert_errors_within(errors, 1e-12)


@pytest.mark.parametrize(
    ("q", "r"), [(1.0, 0.75), (1.25, 1.0), (1.75, 1.25), (3.0, 1.0), (1.0, 1.5), (1.25, 1.5), (3.0, 3.0)]
)
def test_a_confident_row_stays_so_at_any_temperature(q, r):
    z = tensor([0.0, -3.0, -3.5])
    errors = {}
    for sharpness in (0.1, 1.0, 10.0):
        exact = reference.sharmix((z * sharpness).tolist(), q, r)
        for temperature in (1e-300, 1e-6, 0.1, 30.0, 1e300):
            p = sharmix.sharmix(z * sharpness * temperature, q, r, temperature)
            errors[temperature, sharpness] = reference.worst_error(p.tolist(), exact)
    assert_errors_within(errors, 1e-12)


@pytest.mark.parametrize(("q", "r"), [(1.45, 2 - 1 / 1.45), (1.3, 2 - 1 / 1.3), (4 / 3, 1.250001)])
def test_single_precision_is_exact_where_the_equation_is_flat(q, r):
    errors = {}
    for classes in (661, 2136, 10192):
        for top in torch.linspace(2, 3.3, 40).tolist():
            z = torch.zeros(classes)
            z[0] = top
            exact = sharmix.sharmix(z.double(), q, r)
            errors[classes, top] = (sharmix.sharmix(z, q, r) - exact).abs().max().item()
    assert_errors_within(errors, 1e-6)


def test_a_triple_root_is_found_in_bounded_time():
    # Where the jump of Theorem 4.2 begins: g, g' and g'' are all 0 at its root.
    z = [1.3263444, *[0.0] * 9]
    start = time.process_time()
    p = sharmix.sharmix(tensor(z), q=1.75, r=1.28594454806)
    assert time.process_time() - start < 30  # without a limit it takes all memory there is
    exact = reference.sharmix(z, 1.75, 1.28594454806)
    assert reference.worst_error(p.tolist(), exact) <= 1e-3


def test_nearly_tied_rows_take_as_few_steps_in_double_precision_as_in_single():
    z = 1e-8 * torch.randn(16, 1000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))  # for one thread

    def seconds(logits):
        start = time.process_time()
        for q in (1.9, 1.95, 1.99):
            sharmix.sharmix(logits, q, r=4.0)
        return time.process_time() - start

    single, double = (min(seconds(logits) for _ in range(5)) for logits in (z.float(), z))
    assert double < 5 * single  # ten times if rounding keeps the last step above its limit


@pytest.mark.parametrize(("q", "r"), [(1.75, 1.25), (1.5, 1.25), (3.0, 1.6), (1.5, 4 / 3 - 5e-5)])
def test_non_concave_orders_can_be_refused(q, r):
    with pytest.raises(ValueError, match=rf"\({q:g}, {r:g}\)"):
        sharmix.sharmix(torch.zeros(3), q=q, r=r, nonconcave="error")


def test_named_maps_are_the_limits_of_the_family():
    z = tensor([[1.0, 0.7, -0.4, -3.0], [0.1, 0.0, 0.05, -0.2]])
    torch.testing.assert_close(sharmix.sharmix(z, q=1, r=1), torch.softmax(z, -1))
    torch.testing.assert_close(sharmix.entmax(z, alpha=1), torch.softmax(z, -1))
    for of_sparsemax in (sharmix.sharmix(z, q=2, r=2), sharmix.entmax(z, alpha=2), sharmix.sparsemax(z)):
        torch.testing.assert_close(of_sparsemax, entmax.sparsemax(z))
    for of_entmax in (sharmix.sharmix(z, q=1.5, r=1.5), sharmix.entmax(z, alpha=1.5)):
        torch.testing.assert_close(of_entmax, entmax.entmax15(z))


def test_what_is_not_allowed_is_named_with_its_value_or_shape():
    z, whole = torch.zeros(2, 5, dtype=torch.float64), torch.tensor(2)
    of_orders = r"[qr] must be a number or a floating-point tensor, got"
    with every_case() as case:
        for name, value, named in (
            ("q", 0.99, "0.99"),
            ("q", tensor([[1.5], [0.5]]), "0.5"),
            ("q", math.nan, "nan"),
            ("r", 0.0, "0"),
            ("r", math.inf, "inf"),
            ("temperature", -2.5, "-2.5"),
            ("alpha", 0.5, "0.5"),
            ("alpha of normmax", 1.0, "1"),
            *(("alpha of alpha-ReLU", value, str(value)) for value in (1.0, 0.5)),
            ("alpha of AlphaReLU", 0.5, "0.5"),
            *((name, torch.full((3, 1), 1.5), r"\(3, 1\).*\(2, 5\)") for name in ("q", "r", "temperature")),
        ):
            functions = {"alpha": sharmix.entmax, "alpha of normmax": sharmix.normmax}
            functions["alpha of alpha-ReLU"] = sharmix.alpha_relu
            functions["alpha of AlphaReLU"] = lambda z, alpha: sharmix.AlphaReLU(alpha=alpha)
            function, name = functions.get(name, sharmix.sharmix), name.split()[0]
            with case(name=name, value=value), pytest.raises(ValueError, match=rf"(?s)\b{name}\b.*{named}"):
                function(z, **{name: value})
        for message, call in (
            (of_orders, lambda: sharmix.sharmix(z, whole, 2.0, dim=0)),
            (of_orders, lambda: sharmix.fenchel_young_loss(z, torch.zeros(2).long(), 2.0, whole)),
            (of_orders, lambda: sharmix.SharMiX(q=whole)),
            ("tau must be a number or a floating-point", lambda: sharmix.alpha_relu(z, tau=whole)),
            ("logits must be a dense tensor, got torch.sparse_coo", lambda: sharmix.sharmix(z.to_sparse())),
        ):
            with case(expected=message), pytest.raises(TypeError, match=message):
                call()


@pytest.mark.parametrize("dtype", accuracy.GOALS, ids=str)
def test_no_probability_is_negative_where_logits_lie_on_the_edge_of_the_support(dtype):
    generator = torch.Generator().manual_seed(0)
    second_orders = torch.linspace(0.3, 2.0, 24)
    with every_case() as case:
        for q, classes in itertools.product([1.25, 1.3, 1.5, 1.9, 2.0], [2, 3, 7, 20]):
            z = torch.randint(0, 4, (24, 9, classes), generator=generator).to(dtype) / (q - 1)
            if sharmix.backend() == "torch":  # which gives every row an order of its own before it computes
                batches = [(z, second_orders.reshape(24, 1, 1))]
            else:
                batches = zip(z, second_orders.tolist(), strict=True)
            for rows, r in batches:
                with case(q=q, r=r, classes=classes):
                    p = sharmix.sharmix(rows, q, r)
                    assert (p >= 0).all()
                    torch.testing.assert_close(p.sum(-1), torch.ones(p.shape[:-1], dtype=dtype))
