"""What every registered activation promises, on map and loss, at the edges of its inputs."""

import itertools
import math

import pytest
import torch
import torch.distributed as dist

import sharmix
import sharmix.parallel
from tests.sharmix.cases import every_case

pytestmark = pytest.mark.usefixtures("each_build")

PARAMETERS = {
    "entmax": {"alpha": 1.5},
    "entmax_learned": {"alpha": 1.5},
    "entmax_package": {"alpha": 1.5},
    "alpha_relu": {"alpha": 1.5, "tau": 0.25},
    "sharmix_fixed": {"q": 1.25, "r": 1.5},
    "sharmix_learned": {"q": 1.25, "r": 1.5},
}
VARIANTS = [
    *((name, PARAMETERS.get(name, {})) for name in sharmix.available_activations()),
    ("alpha_relu", {"alpha": 1.5}),  # calibrated by the first batch the test gives it
    ("sharmix_fixed", {"q": 1.75, "r": 1.25}),
    ("sharmix_fixed", {"q": 1.0, "r": 1.5, "temperature": 0.5}),
    ("sharmix_learned", {"q": 1.25, "r": 1.5, "objective": "brier"}),
    ("sharmix_learned", {"q": 1.25, "r": 1.5, "objective": "log"}),
    ("entmax_learned", {"alpha": 1.5, "objective": "brier"}),
]
SHARED = [  # their losses are computed as those of shared classes, too; test_parallel.py has more than one process
    *(("sharmix_fixed", {"q": q, "r": r}) for q, r in ((1.25, 1.5), (1.5, 1.4), (3.0, 2.0))),
    *(("sharmix_learned", {"q": 1.25, "r": 1.5}), ("entmax", {"alpha": 1.5}), ("sparsemax", {}), ("normmax", {})),
]
# Multiples of 1/16: adding 1e6 is exact in both dtypes.
Z = [[1.5, 0.25, -0.5, 0.0], [0.125, 0.25, 0.375, -4.0], [-1.0, 2.0, 2.5, 0.5]]
Y = torch.tensor([1, 3, 2])
INF, NAN = math.inf, math.nan


@pytest.fixture(
    params=[
        *((*one, False) for one in VARIANTS),
        (*SHARED[0], True),
        *(pytest.param((*one, True), marks=pytest.mark.medium) for one in SHARED[1:]),
    ],
    ids=lambda v: "-".join([v[0], *map(str, v[1].values()), *["shared"] * v[2]]),
)
def act(request):
    name, parameters, is_shared = request.param
    act = sharmix.build_activation(name, **parameters).double()
    if not is_shared:
        yield act
        return
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    act.loss = shared_loss(act)
    yield act
    dist.destroy_process_group()


def shared_loss(act):
    """With so few candidates that some rows are certified and others are not."""
    whole_loss = act.loss

    def loss(z, y, **options):
        if y.is_floating_point():  # a distribution is no index
            return whole_loss(z, y, **options)
        return sharmix.parallel.vocab_parallel_loss(z, y, *act.orders(), candidates=2, **options)

    return loss


def logits(values=Z, dtype=torch.float64):
    return torch.tensor(values, dtype=dtype, requires_grad=True)


def one_hot(y, classes=4):
    return torch.nn.functional.one_hot(y, classes).double()


def gradient(loss, z):
    return torch.autograd.grad(loss.sum(), z)[0]


def test_a_constant_added_to_all_logits(act):
    with every_case() as case:
        for dtype in (torch.float32, torch.float64):
            with case(dtype=dtype):
                act = act.to(dtype)
                z = logits(dtype=dtype).detach()
                p, loss = act(z), act.loss(z, Y, reduction="none")
                if not act.normalised:
                    assert (act(z + 1)[p > 0] > p[p > 0]).all()
                    assert (act(z + 1) >= p).all()
                    continue
                for shift in (1e6, 2**20):
                    torch.testing.assert_close(act(z + shift), p, rtol=0, atol=1e-7)
                    shifted = act.loss(z + shift, Y, reduction="none")
                    torch.testing.assert_close(shifted, loss, rtol=0, atol=1e-6)


def test_huge_logits_stay_finite(act):
    z = logits([[1e9, -1e9, 0.0, 5e8], [-1e9, -1e9, -1e9, -1e9], [1e9, 1e9, 1e9, 1e9]])
    p, loss = act(z), act.loss(z, Y, reduction="none")
    for value in (p, loss, gradient(loss, z), gradient(act(z) * torch.tensor(Z), z)):
        assert value.isfinite().all()
    if act.normalised:
        torch.testing.assert_close(p.sum(-1), torch.ones(3).double())


def test_minus_infinity_has_no_weight_and_no_gradient(act):
    z = logits([[1.5, -INF, -0.5, 0.0], [0.0, 0.25, 0.5, -INF], [0.5, -INF, 0.25, -INF]])
    y = torch.tensor([0, 2, 2])
    absent = z.detach().isinf()
    p, loss = act(z), act.loss(z, y, reduction="none")
    assert (p[absent] == 0).all()
    assert loss.isfinite().all()
    for value in (gradient(loss, z), gradient(p * torch.tensor(Z), z)):
        assert value.isfinite().all()
        assert (value[absent] == 0).all()
    without = logits([[1.5, -0.5, 0.0]])
    torch.testing.assert_close(p[:1, [0, 2, 3]], act(without))
    torch.testing.assert_close(loss[:1], act.loss(without, torch.tensor([0]), reduction="none"))


def test_minus_infinity_on_the_label_costs_infinity_in_its_own_row(act):
    z = logits([Z[0], [0.125, 0.25, 0.375, -INF], Z[2]])
    loss = act.loss(z, Y, reduction="none")
    assert loss[1] == INF
    expected = act.loss(logits(), Y, reduction="none")
    torch.testing.assert_close(loss[[0, 2]], expected[[0, 2]])
    assert gradient(loss[[0, 2]], z).isfinite().all()


def test_a_row_without_an_answer_is_nan_alone(act):
    plain, others = logits(), [0, 2]
    expected = act.loss(plain, Y, reduction="none")
    expected_gradient = gradient(expected, plain)
    with every_case() as case:
        for row in ([NAN, 0.0, 1.0, 2.0], [-INF] * 4):
            with case(row=row):
                z = logits([Z[0], row, Z[2]])
                p, loss = act(z), act.loss(z, Y, reduction="none")
                if act.normalised:
                    assert p[1].isnan().all()
                    assert loss[1].isnan()
                elif row[0] == -INF:
                    assert (p[1] == 0).all()
                    assert loss[1] == INF
                else:
                    assert p[1].isnan().tolist() == [True, False, False, False]
                    assert loss[1].isnan()
                torch.testing.assert_close(p[others], act(plain)[others])
                torch.testing.assert_close(loss[others], expected[others])
                torch.testing.assert_close(gradient(loss, z)[others], expected_gradient[others])


def test_one_class(act):
    z, y = logits([[0.5], [-30.0], [0.0]]), torch.tensor([0, 0, 0])
    p, loss = act(z), act.loss(z, y, reduction="none")
    if act.normalised:
        assert (p == 1).all()
        assert (loss == 0).all()
    else:
        torch.testing.assert_close(p, sharmix.alpha_relu(z, alpha=1.5, tau=act.tau))
        assert (loss > 0).all()
    torch.testing.assert_close(gradient(loss, z), (p - 1).detach())


def test_an_empty_batch(act):
    with every_case() as case:
        for shape in ((0, 4), (0, 3, 4), (2, 0, 4)):
            with case(shape=shape):
                z = torch.zeros(shape, dtype=torch.float64, requires_grad=True)
                y = torch.zeros(shape[:-1], dtype=torch.long)
                assert act(z).shape == shape
                assert act.loss(z, y, reduction="none").shape == shape[:-1]
                assert act.loss(z, y, reduction="sum") == 0
                assert act.loss(z, y).isnan()
                assert gradient(act.loss(z, y), z).shape == shape


def test_non_contiguous_logits_and_labels(act):
    wide = logits().detach().repeat_interleave(2, dim=1)
    strided = wide[:, ::2]
    transposed = logits().detach().T.contiguous().T
    labels = torch.stack([Y, Y], dim=1)[:, 0]
    p, loss = act(logits()), act.loss(logits(), Y)
    for z in (strided, transposed):
        assert not z.is_contiguous()
        assert torch.equal(act(z), p)
        assert torch.equal(act.loss(z, labels), loss)


def test_leading_dimensions_are_rows(act):
    z = torch.stack([logits().detach(), logits().detach() / 2])
    y = torch.stack([Y, Y])
    torch.testing.assert_close(act(z), act(z.reshape(6, 4)).reshape(2, 3, 4))
    torch.testing.assert_close(
        act.loss(z, y, reduction="none"),
        act.loss(z.reshape(6, 4), y.reshape(6), reduction="none").reshape(2, 3),
    )


def test_integer_logits_are_a_type_error(act):
    z = torch.ones(3, 4, dtype=torch.long)
    with pytest.raises(TypeError, match="int64"):
        act(z)
    with pytest.raises(TypeError, match="int64"):
        act.loss(z, Y)


def test_a_label_out_of_range_is_named(act):
    with every_case() as case:
        for label in (4, -1, 99):
            with case(label=label), pytest.raises(ValueError, match=rf"(?s){label}.*4|4.*{label}"):
                act.loss(logits(), torch.tensor([1, label, 2]))


def test_targets_of_another_shape_are_named_with_both_shapes(act):
    with every_case() as case:
        for shape, dtype in itertools.product([(2,), (3, 1), (4,), (3, 3)], [torch.long, torch.float64]):
            with case(shape=shape, dtype=dtype):
                with pytest.raises(ValueError, match=r"\(3, 4\)") as error:
                    act.loss(logits(), torch.zeros(shape, dtype=dtype))
                assert str(shape) in str(error.value)


def test_the_loss_is_never_negative_and_zero_at_a_large_margin(act):
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(50, 6, generator=generator, dtype=torch.float64) * 3
    y = torch.randint(6, (50,), generator=generator)
    assert (act.loss(z, y, reduction="none") >= 0).all()
    assert (act.loss(z, torch.softmax(z / 3, -1), reduction="none") >= 0).all()
    # Unnormalised, the optimum is a point: u = 1 on the label and 0 elsewhere.
    sure = (1000 if act.normalised else (1 + act.tau) / 0.5) * one_hot(Y)
    assert (act.loss(sure, Y, reduction="none").abs() <= 1e-12).all()


def test_the_gradient_is_p_minus_y(act):
    soft = torch.tensor([[0.5, 0.25, 0.25, 0.0], [0.0, 0.0, 1.0, 0.0], [0.25] * 4]).double()
    for target, distribution in ((Y, one_hot(Y)), (soft, soft)):
        z = logits()
        expected = (act(z) - distribution).detach()
        loss = act.loss(z, target, reduction="none")
        torch.testing.assert_close(gradient(loss, z), expected, rtol=0, atol=1e-9)
        z = logits()
        torch.testing.assert_close(gradient(act.loss(z, target), z), expected / 3, rtol=0, atol=1e-9)


def test_smoothed_labels_are_soft_targets(act):
    smooth = 0.9 * one_hot(Y) + 0.025
    z = logits()
    loss = act.loss(z, Y, label_smoothing=0.1)
    torch.testing.assert_close(loss, act.loss(logits(), smooth))
    torch.testing.assert_close(gradient(loss, z), (act(z) - smooth).detach() / 3, rtol=0, atol=1e-9)


def test_ignored_targets(act):
    z, y = logits(), torch.tensor([1, -100, 2])
    loss = act.loss(z, y)
    torch.testing.assert_close(loss, act.loss(logits()[[0, 2]], Y[[0, 2]]))
    assert (gradient(loss, z)[1] == 0).all()
    every = torch.full((3,), -100)
    for reduction in ("mean", "sum"):
        loss = act.loss(z, every, reduction=reduction)
        assert loss.isnan() if reduction == "mean" else loss == 0
        assert (gradient(loss, z) == 0).all()
    assert act.loss(z, Y, ignore_index=2, reduction="none")[2] == 0


def test_an_ignored_row_may_hold_anything(act):
    z = logits([Z[0], [NAN, INF, -INF, 0.0], Z[2]])
    y = torch.tensor([1, -100, 2])
    loss = act.loss(z, y)
    torch.testing.assert_close(loss, act.loss(logits()[[0, 2]], Y[[0, 2]]))
    assert gradient(loss, z).isfinite().all()


def test_half_precision(act):
    act = act.float()
    with every_case() as case:
        for dtype in (torch.float16, torch.bfloat16):
            with case(dtype=dtype):
                z = logits(dtype=dtype)
                full = z.detach().float()
                p, loss = act(z), act.loss(z, Y)
                assert p.dtype == dtype
                assert loss.dtype == torch.float32
                assert torch.equal(p, act(full).to(dtype))
                torch.testing.assert_close(loss, act.loss(full, Y))
                assert gradient(loss, z).dtype == dtype


def test_learned_parameters_get_a_finite_gradient(act):
    parameters = act.entropy_parameters()
    if not parameters:
        assert list(act.parameters()) == []
        return
    for output in (act.loss(logits(), Y), act(logits()).square().sum()):
        for value in torch.autograd.grad(output, parameters):
            assert value.isfinite().all()
            assert (value != 0).all()
