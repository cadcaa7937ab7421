"""The page's own WebAssembly beside Python."""

import numpy as np
import pytest
import torch

import sharmix

pytestmark = pytest.mark.slow
CASES, LARGEST = 2000, 1000
TOLERANCE = 1e-12


@pytest.fixture(scope="module")
def cases():
    """Logits of 2 to 1,000 classes at several scales, and orders q ≤ 2, of which many are not concave."""
    draw = np.random.default_rng(0)
    rows, orders = [], []
    for _ in range(CASES):
        classes = int(np.exp(draw.uniform(np.log(2), np.log(LARGEST + 1))))
        rows.append(draw.normal(size=classes) * draw.choice([0.3, 1, 3]))
        q = draw.choice([1, 1.25, 1.5, 2, draw.uniform(1, 2), draw.uniform(1, 2)])
        r = draw.choice([q, draw.uniform(0.5, 2.5), draw.uniform(0.5, 2.5)])
        orders.append([q, r, draw.choice([1, draw.uniform(0.2, 3)]), int(draw.integers(classes))])
    below = sum(r < 2 - 1 / q for q, r, *_ in orders)
    assert 300 < below < 1700
    return rows, orders


def assert_same(what, found, expected):
    difference = max(float(np.abs(own - other).max()) for own, other in zip(found, expected, strict=True))
    print(f"{what}: {difference:.1e}")
    assert difference < TOLERANCE


def test_map_is_that_of_python(visit, cases):
    rows, orders = cases
    found = visit().compute("(kernel, z, [q, r, t]) => kernel.map(z, q, r, t)", rows, orders)
    expected = [sharmix.sharmix(torch.tensor(row), *order[:3]).numpy() for row, order in zip(rows, orders, strict=True)]
    assert_same("map", found, expected)


def test_numbers_of_survivors_are_those_of_python(visit, cases):
    rows, orders = cases
    found = visit().compute("(kernel, z, [q, r, t]) => [...kernel.survivors(z, [q, 1], [r, 1], t)]", rows, orders)
    for (own, all_of_them), row, order in zip(found, rows, orders, strict=True):
        assert own == (sharmix.sharmix(torch.tensor(row), *order[:3]) > 0).sum()
        assert all_of_them == len(row)


def test_loss_and_gradient_are_those_of_python(visit, cases):
    rows, orders = cases
    script = """(kernel, z, [q, r, t, y]) => {
        const { loss, gradient } = kernel.loss(z, y, q, r, t);
        return [loss, ...gradient];
    }"""
    found = visit().compute(script, rows, orders)
    losses, gradients = [], []
    for row, (q, r, temperature, label) in zip(rows, orders, strict=True):
        logits = torch.tensor(row, requires_grad=True)
        loss = sharmix.fenchel_young_loss(logits[None], torch.tensor([label]), q, r, temperature)
        losses.append(loss.detach().numpy())
        gradients.append(torch.autograd.grad(loss, logits)[0].numpy())
    sizes = [max(1, abs(loss)) for loss in losses]  # a loss is rounded beside its own size
    assert_same("loss", [one[0] / size for one, size in zip(found, sizes, strict=True)], np.divide(losses, sizes))
    assert_same("gradient", [one[1:] for one in found], gradients)


def test_row_of_the_jacobian_is_that_of_python(visit, cases):
    rows, orders = (part[:300] for part in cases)
    script = """(kernel, z, [q, r, t, y]) => {
        const row = kernel.jacobianRow(z, y, q, r, t);
        return [...row.logits, ...row.orders];
    }"""
    found = visit().compute(script, rows, orders)
    expected = []
    for row, (*values, label) in zip(rows, orders, strict=True):
        inputs = [torch.tensor(one, dtype=torch.float64, requires_grad=True) for one in (row, *values)]
        p = sharmix.sharmix(*inputs)
        expected.append(np.concatenate([np.atleast_1d(part) for part in torch.autograd.grad(p[label], inputs)]))
    largest = [max(1, np.abs(one).max()) for one in expected]
    relative = ([one / size for one, size in zip(rows, largest, strict=True)] for rows in (found, expected))
    assert_same("Jacobian", *relative)


def test_entry_temperatures_are_the_scores_of_python(visit, cases):
    concave = [
        (row, order) for row, order in zip(*cases, strict=True) if order[0] > 1 and order[1] >= 2 - 1 / order[0]
    ][:300]
    rows, orders = zip(*concave, strict=True)
    found = visit().compute("(kernel, z, [q, r, t, y]) => [kernel.entryTemperature(z, y, q, r)]", rows, list(orders))
    for own, row, (q, r, _, label) in zip(found, rows, orders, strict=True):
        score = sharmix.conformal.support_scores(torch.tensor(row), torch.tensor(label), q, r)
        assert own[0] == pytest.approx(score.item(), rel=1e-11)


def test_both_maxima_are_stationary_and_the_higher_one_is_the_map(visit):
    """At (1.75, 1.25), below r = 2 − 1/q, ten classes with one ahead have two maxima."""
    row = np.array([1.35] + [0.0] * 9)
    script = "(kernel, z, [q, r, t]) => kernel.maxima(z, q, r, t).flatMap((one) => [one.objective, ...one.p])"
    [found] = visit().compute(script, [row], [[1.75, 1.25, 1.0]])
    maxima = found.reshape(-1, 11)
    assert len(maxima) == 2
    for objective, *p in maxima:
        p = torch.tensor(p)
        value = p @ torch.tensor(row - 1.35) + sharmix.sharma_mittal_entropy(p, 1.75, 1.25) / 1.75
        assert value.item() == pytest.approx(objective, abs=1e-12)
    expected = sharmix.sharmix(torch.tensor(row), 1.75, 1.25)
    assert np.abs(maxima[maxima[:, 0].argmax(), 1:] - expected.numpy()).max() < TOLERANCE
