"""Each formula the SharMiX paper misprints, beside what holds: the printed one must fail where ours does not.

`docs/errata.md` lists them; the derivatives are compared with central differences of the 50-digit reference.
"""

import math

import entmax
import mpmath
import numpy as np
import pytest
import torch
from mpmath import mpf

import sharmix
from tests.sharmix import reference

LOGITS = [1.3, 0.4, 0.1, -0.2, -0.9, -1.1]
STEP = mpf(10) ** -12


def off(found: np.ndarray, true: np.ndarray) -> float:
    """The relative error ‖found − true‖/‖true‖."""
    return float(np.linalg.norm(found - true) / np.linalg.norm(true))


def output(q: float, r: float, logits: list[float] = LOGITS) -> np.ndarray:
    return np.array([float(p) for p in reference.sharmix(logits, q, r)])


def test_equation_3_has_the_exponent_of_appendix_a() -> None:
    p, q = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64), 1.5
    power_sum = (p**q).sum().item()
    tsallis = (1 - power_sum) / (q - 1)

    def printed(r: float) -> float:
        return (power_sum ** ((1 - r) / q) - 1) / (1 - r)

    assert sharmix.sharma_mittal_entropy(p, q, q).item() == pytest.approx(tsallis, rel=1e-14)
    assert printed(q) != pytest.approx(tsallis, rel=0.5)
    assert printed(1 + 1e-6) < 0 < sharmix.sharma_mittal_entropy(p, q, 1.0).item()


def test_equation_5_leaves_tau_free_and_r_out() -> None:
    z = np.array(LOGITS)

    def printed(tau: float, q: float) -> np.ndarray:
        powers = np.clip(z - tau, 0, None) ** (1 / (q - 1))
        return powers / powers.sum()

    for tau in (-3.0, -2.0, 0.0):  # "tau enforces normalization", which holds for every tau
        assert printed(tau, 1.5).sum() == pytest.approx(1, abs=1e-15)
    assert np.abs(output(1.5, 1.4) - output(1.5, 2.0)).max() > 1e-3  # while the argmax depends on r


def test_equation_19_misplaces_a_bracket() -> None:
    q = 1.5

    def threshold(order: mpf) -> mpf:
        """τ of 1-entmax's form pᵢ = [(q−1)(zᵢ−τ)]₊^{1/(q−1)}, from the largest class."""
        top = reference.sharmix(LOGITS, order, order)[0]
        return LOGITS[0] - top ** (order - 1) / (order - 1)

    with mpmath.workdps(50):
        true = float((threshold(q + STEP) - threshold(q - STEP)) / (2 * STEP))
        tau = float(threshold(mpf(q)))
    p, excess = output(q, q), np.array(LOGITS) - tau
    support = p > 0
    mean_log = float((p[support] * np.log((q - 1) * excess[support])).sum())
    mean_inverse = float((p[support] / excess[support]).sum())
    printed = (1 - mean_log / mean_inverse) / (q - 1)
    corrected = (1 - mean_log) / mean_inverse / (q - 1)
    assert corrected == pytest.approx(true, rel=1e-9)
    assert abs(printed / true - 1) > 0.1


def test_equation_20_is_satisfied_by_every_slope_of_tau() -> None:
    q, r = 1.5, 1.75
    p = output(q, r)
    p = p[p > 0]
    excess = p ** (q - 1)  # z − τ is proportional to it
    for slope in (-1.0, 0.0, 2.0):
        inverse = -(q - 1) * slope / excess
        printed = p / (q - 1) * (inverse - (p * inverse).sum())
        assert printed.sum() == pytest.approx(0, abs=1e-14)


@pytest.mark.parametrize(("q", "r"), [(1.25, 1.5), (1.5, 1.75), (1.75, 1.5)])
def test_equation_21_holds_only_for_equal_orders(q: float, r: float) -> None:
    z = torch.tensor(LOGITS, dtype=torch.float64)

    def printed(q: float, r: float) -> np.ndarray:
        p = output(q, r)
        a = np.where(p > 0, p ** (2 - q), 0)
        return np.diag(a) - np.outer(a, a) / a.sum()

    def exact(q: float, r: float) -> np.ndarray:
        return torch.func.jacrev(lambda z: sharmix.sharmix(z, q, r))(z).numpy()

    with mpmath.workdps(50):
        columns = []
        for i in range(len(LOGITS)):
            up, down = ([mpf(v) + (sign * STEP if i == j else 0) for j, v in enumerate(LOGITS)] for sign in (1, -1))
            pairs = zip(reference.sharmix(up, q, r), reference.sharmix(down, q, r), strict=True)
            columns.append([float((a - b) / (2 * STEP)) for a, b in pairs])
    true = np.array(columns).T
    assert off(exact(q, r), true) < 1e-9
    assert off(printed(q, r), true) > 0.03
    assert off(printed(q, q), exact(q, q)) < 1e-12


def test_theorem_4_2_fails_where_the_argmax_jumps() -> None:
    def top(a: float, classes: int) -> float:
        z = torch.zeros(classes, dtype=torch.float64)
        z[0] = a
        return sharmix.sharmix(z, 1.75, 1.25)[0].item()

    # (1.75, 1.25) is on the paper's grid, in the range its theorem claims; math section 3 has the values.
    for classes, place, before in ((10, 1.34316, 0.6415), (1000, 1.89722, 0.0212)):
        low, high = 1.3, 2.0
        while high - low > 1e-12:
            middle = (low + high) / 2
            low, high = (middle, high) if top(middle, classes) < 0.8 else (low, middle)
        assert low == pytest.approx(place, abs=5e-6)
        assert top(low, classes) == pytest.approx(before, abs=5e-5)
        assert top(high, classes) == pytest.approx(1, abs=1e-9)


def test_theorem_4_2_fails_where_the_support_changes() -> None:
    def jacobian(first: float, order: float) -> torch.Tensor:
        z = torch.tensor([first, 0.0], dtype=torch.float64)
        return torch.func.jacrev(lambda z: sharmix.sharmix(z, order, order))(z)

    for h in (1e-3, 1e-6):  # at q = 2 a kink
        assert [jacobian(1 + sign * h, 2.0)[1, 0].item() for sign in (-1, 1)] == pytest.approx([-0.5, 0])
    edge = jacobian(4 / 3, 1.75)
    changes = [(jacobian(4 / 3 - h, 1.75) - edge).abs().max().item() / h for h in (1e-2, 1e-4, 1e-6)]
    assert changes == pytest.approx([15.8, 401, 8984], rel=2e-3)  # no Lipschitz constant


def test_appendix_b_1_leaves_out_the_inner_product() -> None:
    z, y = torch.tensor([LOGITS], dtype=torch.float64), torch.tensor([1])
    loss = sharmix.fenchel_young_loss(z, y, 1.25, 1.5).item()
    p = sharmix.sharmix(z, 1.25, 1.5)
    conjugate = (p * z).sum().item() + sharmix.sharma_mittal_entropy(p, 1.25, 1.5).item() / 1.25
    assert loss == pytest.approx(conjugate - z[0, 1].item(), rel=1e-12)
    assert not math.isclose(loss, conjugate, rel_tol=0.1)  # H*(z) + H(y), as printed; H(y) = 0


def test_at_equal_orders_sharmix_is_entmax_so_one_row_of_table_1_contradicts_another() -> None:
    z = torch.randn(64, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(sharmix.sharmix(z, 1.5, 1.5), entmax.entmax15(z))


@pytest.mark.parametrize("alpha", [1.25, 1.5, 2.0])
@pytest.mark.parametrize("form", ["printed", "of the proof"])
def test_lemma_1_of_speeding_up_entmax_holds_for_the_entropy_of_its_proof_alone(alpha, form):
    tau, y = 0.3, torch.eye(4, dtype=torch.float64)[[1, 3, 2]]

    class Lemma1(torch.autograd.Function):
        """Eq. (2), with the gradient that Lemma 1 claims."""

        @staticmethod
        def forward(ctx, z):
            p = sharmix.alpha_relu(z, alpha=alpha, tau=tau)
            ctx.save_for_backward(p)
            entropy = ((p if form == "printed" else 1 / 4) - p**alpha).sum(-1) / (alpha * (alpha - 1))
            return ((p - y) * (z - tau / (alpha - 1))).sum(-1) + entropy

        @staticmethod
        def backward(ctx, grad):
            return grad.unsqueeze(-1) * (ctx.saved_tensors[0] - y)

    z = torch.tensor([[1.5, 0.25, -0.5, 2.0], [1.1, 2.2, 0.3, -4.0], [-1.0, 2.0, 1.9, 0.5]], dtype=torch.float64)
    holds = torch.autograd.gradcheck(Lemma1.apply, z.requires_grad_(), raise_exception=False)
    assert holds == (form == "of the proof")
