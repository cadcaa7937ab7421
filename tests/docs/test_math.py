"""docs/math.md: the sections that docstrings cite exist, so do the tests that it names, and its identities hold."""

import re

import numpy as np
import pytest
import torch
from mpmath import diff, mp, mpf, quad

import sharmix
from tests.docs.pages import DOCS, ROOT, names_of_tests
from tests.sharmix import reference

PAGE = (DOCS / "math.md").read_text("utf-8")
SECTIONS = {int(number): text for number, text in re.findall(r"\n## (\d+)\. (.*?)(?=\n## |\Z)", PAGE, re.DOTALL)}
CITATION = re.compile(r"docs/math\.md,\s+sections?\s+(\d+(?:(?:,| and)\s+\d+)*)|\bmath section (\d+)")
LOGITS = [1.3, 0.4, 0.1, -0.2, -0.9, -1.1]
ORDERS = [(1.25, 1.5), (1.5, 1.75), (1.75, 1.5), (2.0, 2.0), (1.25, 1.25)]
SETTINGS = pytest.mark.parametrize(("q", "r"), ORDERS)


def test_every_section_that_the_library_or_its_tests_cite_exists():
    files = [*(ROOT / "tests" / "sharmix").rglob("*.py")]
    files += [file for ending in ("py", "h", "cpp") for file in (ROOT / "sharmix").rglob(f"*.{ending}")]
    cited = {
        (int(number), file.name)
        for file in files
        for citation in CITATION.finditer(file.read_text("utf-8"))
        for number in re.findall(r"\d+", citation[0])
    }
    assert len(cited) > 10
    assert {number for number, _ in cited} >= {2, 3, 4, 5, 6, 7, 8}
    assert {(number, file) for number, file in cited if number not in SECTIONS} == set()


@pytest.mark.parametrize("number", sorted(SECTIONS))
def test_every_section_names_tests_that_exist(number):
    named = set(re.findall(r"`(test_\w+)`", SECTIONS[number]))
    assert named
    assert named <= names_of_tests("tests")


class Solved:
    """The map's output at some logits, and the quantities of sections 2 and 4, in double precision on the support."""

    def __init__(self, q: float, r: float) -> None:
        p = np.array([float(one) for one in reference.sharmix(LOGITS, q, r)])
        self.support = p > 0
        self.q, self.r = q, r
        self.p = p[self.support]
        self.S = (self.p**q).sum()
        self.R = np.log(self.S) / (1 - q)
        self.T = np.exp((q - r) * self.R)
        self.a = self.p ** (2 - q)
        self.A = self.a.sum()
        self.v = self.p - self.a / self.A
        self.kappa = (r - q) / (q - 1)
        self.c = self.T / (q - 1)
        self.logs = np.log(self.p)
        self.D = 1 / self.c + self.kappa * q / (self.S * self.T) * (self.S - 1 / self.A)


@SETTINGS
def test_the_equation_and_its_slope(q, r):
    x = np.array(LOGITS) - max(LOGITS)
    beta, k = 1 / (q - 1), (r - q) / (1 - q)

    def sums(y):
        w = 1 + (q - 1) * x / np.exp(y)
        w = w[w > 0]
        return w, (w**beta).sum(), (w ** (beta + 1)).sum()

    def g(y):
        w, W, V = sums(y)
        p = w**beta / W
        mean = (p * x[: len(p)]).sum()
        entropy = np.log(W) - np.log1p((q - 1) * mean / np.exp(y)) / (q - 1)
        assert entropy == pytest.approx((np.log(V) - q * np.log(W)) / (1 - q), rel=1e-9)
        assert entropy == pytest.approx(np.log((p**q).sum()) / (1 - q), rel=1e-9)
        return y + (q - 1) * np.log(W) + (r - q) * entropy

    solved = Solved(q, r)
    root = np.log(solved.T * solved.p[0] ** (q - 1))  # s = T p₁^{q−1}
    assert g(root) == pytest.approx(0, abs=1e-12)
    largest = np.log(len(LOGITS))
    assert -(q - 1) * largest - max(0, r - q) * largest <= root <= max(0, q - r) * largest

    y = root + 0.05  # off the root, and off the knots
    w, W, V = sums(y)
    joined = (w ** (beta - 1)).sum()
    slope = 1 + (joined - W) / W + k * ((beta + 1) * (W - V) / V - q * beta * (joined - W) / W)
    assert slope == pytest.approx((g(y + 1e-6) - g(y - 1e-6)) / 2e-6, rel=1e-7)


@SETTINGS
def test_the_entropy_is_a_convex_function_of_a_norm(q, r):
    p = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64)
    m = q * (r - 1) / (q - 1)
    assert (m >= 1) == (r >= 2 - 1 / q)
    of_norm = -((p**q).sum() ** (m / q) - 1) / (r - 1)
    torch.testing.assert_close(sharmix.sharma_mittal_entropy(p, q, r), of_norm, rtol=1e-13, atol=0)


@pytest.mark.medium
@pytest.mark.parametrize(("q", "r"), [(1.5, 1.25), (1.75, 1.25), (1.5, 0.5)])
def test_below_the_border_the_entropy_is_not_concave_for_many_classes(q, r):
    def entropy(t, border):
        p = torch.full((1_000_000,), t / 999_999, dtype=torch.float64)
        p[0] = 1 - t
        return sharmix.sharma_mittal_entropy(p, q, border).item()

    def curvature(border):
        return entropy(0.25, border) - 2 * entropy(0.3, border) + entropy(0.35, border)

    assert curvature(2 - 1 / q + 0.01) < 0 < curvature(r)


@pytest.mark.parametrize(("q", "r"), [(q, r) for q, r in ORDERS if q < 2])
def test_the_printed_derivatives_are_those_of_the_library(q, r):
    one = Solved(q, r)
    eta = one.kappa * q / ((q - 1) * one.S + one.kappa * q * (one.S - 1 / one.A))
    by_logits = (np.diag(one.a) - np.outer(one.a, one.a) / one.A - eta * np.outer(one.v, one.v)) / one.T

    by_c = {"r": np.log(one.S) / (q - 1) / one.D, "temperature": 1 / one.D}
    M, H1 = (one.p**q * one.logs).sum(), -(one.p * one.logs).sum()
    c_by_q = -1 / (q - 1) - (1 + one.kappa) * np.log(one.S) / (q - 1)
    c_by_q += one.kappa / one.S * (M - q * one.c / one.T * (H1 / one.A + M))
    c_by_q /= one.D
    threshold_by_q = (one.c * H1 - c_by_q) / one.A
    by_q = (-one.a * threshold_by_q - one.p * c_by_q - one.c * one.p * one.logs) / one.T

    z, orders = torch.tensor(LOGITS, dtype=torch.float64), {"q": q, "r": r, "temperature": 1.0}
    tensors = {name: torch.tensor(value, dtype=torch.float64) for name, value in orders.items()}
    exact = torch.func.jacrev(lambda z: sharmix.sharmix(z, q, r))(z).numpy()
    assert by_logits == pytest.approx(exact[np.ix_(one.support, one.support)], rel=1e-8, abs=1e-12)
    formulas = {"q": by_q} | {name: -one.v / one.T * slope for name, slope in by_c.items()}
    for name, formula in formulas.items():
        slopes = torch.func.jacrev(lambda order, name=name: sharmix.sharmix(z, **tensors | {name: order}))(
            tensors[name]
        )
        assert formula == pytest.approx(slopes.numpy()[one.support], rel=1e-7, abs=1e-11), name
        assert not slopes.numpy()[~one.support].any()


@SETTINGS
def test_the_entropy_is_an_integral_that_falls_in_both_orders(q, r):
    p = [mpf(one) for one in ("0.5", "0.3", "0.2")]

    def entropy(q, r):
        upper = mp.log(sum(one**q for one in p)) / (1 - q)
        return quad(lambda t: mp.exp((1 - r) * t), [0, upper])

    probabilities = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    assert float(entropy(q, r)) == pytest.approx(sharmix.sharma_mittal_entropy(probabilities, q, r).item(), rel=1e-12)
    assert diff(lambda q: entropy(q, r) / q, q) < 0
    assert diff(lambda r: entropy(q, r), r) < 0
