"""Support scores beside the map and slow formulas, and the sets that they make."""

import math

import mpmath
import numpy as np
import pytest
import torch
from mpmath import mpf

import sharmix
from sharmix.conformal import SupportPredictor, support_scores
from tests.sharmix import reference
from tests.sharmix.cases import assert_errors_within, every_case, for_every
from tests.sharmix.doors import logits

# Integer and other powers 1/(q − 1); r = q, above it, and on the border of the concave region; q > 2.
ORDERS = [(1.25, 1.25), (1.25, 1.5), (1.25, 1.2), (1.3, 1.3), (1.5, 1.5), (1.5, 4 / 3), (1.5, 2.0), (1.75, 1.5)]
ORDERS += [(1.75, 1.75), (2.0, 2.0), (2.0, 1.5), (2.0, 3.0), (3.0, 2.0), (4.0, 4.0)]


def labelled(rows, classes, scale=3.0):
    """Logits and classes drawn from their softmax."""
    z = scale * logits(rows, classes)
    return z, torch.multinomial(z.softmax(-1), 1, generator=torch.Generator().manual_seed(0)).squeeze(-1)


def formula(gaps, own, q, r):
    """T of the class with the gap `own`, to fifty digits."""
    with mpmath.workdps(50):
        q, r, own = mpf(q), mpf(r), mpf(own)
        weights = [(1 - mpf(gap) / own) ** (1 / (q - 1)) for gap in gaps if gap < own]
        total = mpmath.fsum(weights)
        renyi = mpmath.log(mpmath.fsum((weight / total) ** q for weight in weights)) / (1 - q)
        return float((q - 1) * own * total ** (q - 1) * mpmath.exp((r - q) * renyi))


def test_scores_are_the_formula_to_fifty_digits():
    errors = {}
    for q, r in [*ORDERS, (1.0001, 1.2), (1.05, 1.5), (1 + 1 / 8, 2.0), (1.2501, 1.5), (30.0, 2.0)]:
        for scale in (1e-8, 1.0, 1e8):
            z = scale * logits(2, 33)
            found, gaps = support_scores(z, q=q, r=r), z.amax(-1, keepdim=True) - z
            for row, column in ((0, 3), (1, 20)):
                expected = formula(gaps[row].tolist(), gaps[row, column].item(), q, r)
                errors[q, r, scale, row] = abs(found[row, column].item() / expected - 1)
            of_labels = support_scores(z, torch.tensor([3, 20]), q=q, r=r)
            torch.testing.assert_close(of_labels, found[[0, 1], [3, 20]], rtol=1e-12, atol=0)
    assert_errors_within(errors, 1e-12)


def test_a_class_enters_the_fifty_digit_map_at_its_score():
    """The reference reads the map's stationarity conditions backwards, at temperature 1: no formula of ours."""
    errors = {}
    for q, r in ORDERS:
        for p in ([0.5, 0.3, 0.2, 0], [0.9, 0.1, 0.0], [0.4, 0.4, 0.1, 0.05, 0.05, 0], [1.0, 0.0]):
            z = [float(z) for z in reference.logits(p, q, r)]
            entering = support_scores(torch.tensor(z, dtype=torch.float64), q=q, r=r)
            errors[q, r, len(p)] = abs(entering[-1].item() - 1)
            assert (entering[:-1] < 1).all()
    assert_errors_within(errors, 1e-13)


@pytest.mark.medium
def test_sets_are_the_support_of_the_map_in_a_million_memberships():
    compared = left_out = 0
    with every_case() as case:
        for dtype, rounding in ((torch.float64, 1e-7), (torch.float32, 1e-4)):
            for q, r in ORDERS:
                for scale in (0.3, 3.0, 30.0):
                    z, y = labelled(500, 30, scale)
                    predictor = SupportPredictor(q, r).calibrate(z[:100].to(dtype), y[:100], 0.8)
                    support = sharmix.sharmix(z.to(dtype), q, r, predictor.temperature) > 0
                    ratio = support_scores(z.to(dtype).double(), q=q, r=r) / predictor.temperature
                    told = (ratio - 1).abs() > rounding
                    with case(q=q, r=r, scale=scale, dtype=dtype):
                        assert predictor.sets(z.to(dtype))[told].equal(support[told])
                        assert 0.01 < support.double().mean() < 0.99
                    compared, left_out = compared + told.sum().item(), left_out + (~told).sum().item()
    assert compared > 10**6
    assert left_out < 200


def test_a_row_that_the_map_makes_nan_has_nan_scores_and_no_sets():
    z = torch.tensor([[1.0, -math.inf, -math.inf], [math.inf, 0.0, 1.0]])
    for q in (1.25, 1.3):  # sums by moments, and by pairs
        for scores in (support_scores(z, q=q)[:, 1], support_scores(z, torch.tensor([1, 1]), q=q)):
            assert scores[0] == math.inf
            assert scores[1].isnan()
    for row in ([math.nan, 0.0], [math.inf, 0.0], [-math.inf, -math.inf]):
        z = torch.tensor([[1.0, 0.0], row])
        assert support_scores(z).isnan().tolist() == sharmix.sharmix(z).isnan().tolist()
        with pytest.raises(ValueError, match="row 1 of the logits has no largest finite logit"):
            SupportPredictor(temperature=torch.tensor(1.0)).sets(z)
        with pytest.raises(ValueError, match="row 1 of the logits has no largest finite logit"):
            SupportPredictor().calibrate(z, torch.tensor([0, 1]))


def test_too_few_examples_make_sets_of_all_classes_and_a_warning():
    z, y = labelled(9, 4)
    assert SupportPredictor().calibrate(z, y, 0.9).temperature < math.inf  # 10 · 0.9 is 9: enough, without a warning
    with pytest.warns(
        RuntimeWarning, match=r"coverage=0.9 needs 9 calibration examples, and there are 8: .* is inf"
    ) as caught:
        predictor = SupportPredictor().calibrate(z[:8], y[:8], 0.9)
    assert caught[0].filename == __file__
    assert predictor.sets(z).all()


def test_the_rank_is_that_of_the_coverage_as_written():
    """100 · 0.07 is 7.000000000000001 in floating point, whose ceiling is 8."""
    z = torch.stack([torch.arange(1.0, 100.0), torch.zeros(99)], -1)
    predictor = SupportPredictor(2.0, 2.0).calibrate(z, torch.ones(99, dtype=torch.long), 0.07)
    assert 7 < predictor.temperature.item() == pytest.approx(7, rel=1e-6)  # enlarged for what rounding may add


def test_coverage_holds_in_each_class():
    """A class that the logits underrate needs a temperature of its own."""
    z, y = labelled(20_000, 4)
    z = z - 4 * (torch.arange(4) == 2)
    z, y, new, truth = z[:10_000], y[:10_000], z[10_000:], y[10_000:]
    for class_conditional in (False, True):
        sets = SupportPredictor(1.5, 2.0).calibrate(z, y, 0.9, class_conditional=class_conditional).sets(new)
        covered = sets.gather(-1, truth[:, None]).squeeze(-1).double()
        assert covered.mean() == pytest.approx(0.9, abs=0.015)
        rates = torch.stack([covered[truth == label].mean() for label in range(4)])
        assert (rates.min() > 0.88) == class_conditional
    with pytest.warns(RuntimeWarning, match=r"needs 19 calibration examples of a class; .* every set: 2, 3$"):
        few = SupportPredictor(1.5, 2.0).calibrate(z[y < 2], y[y < 2], 0.95, class_conditional=True)
    assert few.sets(new)[:, 2:].all()


def test_a_warning_of_many_classes_lists_a_few():
    z, y = labelled(5, 8)
    with pytest.warns(RuntimeWarning, match=r"in every set: 0, 1, 2, 3, 4, … \(8 in all\)$"):
        SupportPredictor().calibrate(z, y, 0.9, class_conditional=True)


def test_a_class_whose_score_is_the_temperature_is_in_the_set():
    for temperature in (1.0, [1.0, 1.0]):
        assert SupportPredictor(2.0, 2.0, temperature).sets(torch.tensor([1.0, 0.0])).all()


def test_equal_temperatures_of_all_classes_are_one_temperature():
    """Also beside a score, of logits in float32."""
    z = logits(50, 4).float()
    for score in support_scores(z.double(), q=1.5, r=2.0).sort().values[:, 1:3].flatten().tolist():
        for near in (score * (1 - 1e-9), score * (1 + 1e-9)):
            of_each = SupportPredictor(1.5, 2.0, [near] * 4).sets(z)
            assert of_each.equal(SupportPredictor(1.5, 2.0, near).sets(z))


def test_examples_may_have_several_dimensions_and_many_classes():
    z, y = labelled(10, 4)
    scores, predictor = support_scores(z, y), SupportPredictor().calibrate(z, y, 0.5)
    z, y = z.reshape(2, 5, 4), y.reshape(2, 5)
    assert support_scores(z, y).equal(scores.reshape(2, 5))
    again = SupportPredictor().calibrate(z, y, 0.5)
    assert again.temperature == predictor.temperature
    assert again.sets(z).equal(predictor.sets(z.flatten(0, 1)).reshape(z.shape))
    assert support_scores(-torch.arange(20_000.0))[1] == support_scores(torch.tensor([0.0, -1.0]))[1]


def test_scores_of_half_precision_are_single_and_have_no_gradient():
    scores = support_scores(torch.randn(3).half().requires_grad_())
    assert scores.dtype == torch.float32
    assert not scores.requires_grad


def test_a_predictor_is_its_three_values(tmp_path):
    z, y = labelled(50, 5)
    for class_conditional in (False, True):
        predictor = SupportPredictor(1.5, 2.0).calibrate(z, y, 0.5, class_conditional=class_conditional)
        assert SupportPredictor(**vars(predictor)).sets(z).equal(predictor.sets(z))
    assert SupportPredictor(1.5, 2.0, 0.7).sets(z).equal(sharmix.sharmix(z, 1.5, 2.0, 0.7) > 0)
    torch.save(vars(SupportPredictor(np.float64(1.5), np.float32(2.0), 0.7)), tmp_path / "predictor.pt")
    saved = torch.load(tmp_path / "predictor.pt", weights_only=True)
    assert saved == {"q": 1.5, "r": 2.0, "temperature": 0.7}


Z, Y = labelled(20, 3)


@for_every(
    "message, call",
    {
        "q=1 is not allowed": lambda: support_scores(Z, q=1.0),
        r"r must be >= 2 - 1/q = 1.333": lambda: SupportPredictor(1.5, 1.3),
        "r=600.0 .* is not allowed with 3 classes": lambda: support_scores(Z, q=2.0, r=600.0),
        "q must be a number, got a tensor": lambda: SupportPredictor(sharmix.SharMiX(1.5, 1.5, learned=True).q),
        "coverage=1 is not allowed": lambda: SupportPredictor().calibrate(Z, Y, 1),
        "coverage=0 is not allowed": lambda: SupportPredictor().calibrate(Z, Y, 0),
        "temperature=0.0 is not allowed; it must be > 0": lambda: SupportPredictor(temperature=0.0),
        r"temperature=\[1.0, 0.0\] is not allowed": lambda: SupportPredictor(temperature=[1.0, 0.0]),
        "hold no classes": lambda: support_scores(Z[:, :0]),
        r"of one-hot labels these are labels\.argmax\(-1\)": lambda: support_scores(Z, torch.eye(3)[Y].long()),
        "label 3 is out of range for 3 classes; allowed are 0 to 2$": lambda: SupportPredictor().calibrate(Z, Y + 1),
        r"of shape \(19,\) do not match logits of shape \(20, 3\).* shape \(20,\)": lambda: support_scores(Z, Y[1:]),
        "hold no calibration examples": lambda: SupportPredictor().calibrate(Z[:0], Y[:0]),
        r"do not fit temperatures of shape \(2,\)": lambda: SupportPredictor(temperature=torch.ones(2)).sets(Z),
        "must be a tensor of class indices": lambda: support_scores(Z, Y.double()),
        "labels must be .* of an integer type, got torch.bool": lambda: support_scores(Z, Y > 0),
        r"must be a floating-point tensor, got torch.int64; .* \.float\(\)": lambda: support_scores(Z.long()),
        "no temperature yet": lambda: SupportPredictor().sets(Z),
    }.items(),
)
def test_what_is_not_allowed_is_refused(message, call):
    with pytest.raises((ValueError, TypeError, RuntimeError), match=message):
        call()
