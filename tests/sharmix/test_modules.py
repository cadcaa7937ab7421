"""The activations as modules: where the classes are, what is learned, masked rows, descriptions, names of one's own."""

import re
from functools import partial

import pytest
import torch

import sharmix
from sharmix import registry
from tests.sharmix.cases import every_case, for_every
from tests.sharmix.doors import logits

MODULES = {
    "softmax": sharmix.Softmax,
    "sparsemax": sharmix.Sparsemax,
    "entmax": sharmix.Entmax,
    "normmax": sharmix.Normmax,
    "sharmix": sharmix.SharMiX,
    "learned": lambda dim=-1: sharmix.SharMiX(dim=dim, learned=True),
    "alpha_relu": lambda dim=-1: sharmix.AlphaReLU(tau=0.3, dim=dim),
}
INF = torch.inf


@pytest.mark.parametrize("name", MODULES)
def test_classes_along_another_dimension(name):
    z, y = logits(5, 4, 3), torch.tensor([[0, 1, 2]] * 5)
    for dim in (1, -2):
        act, last = MODULES[name](dim=dim).double(), MODULES[name]().double()
        assert torch.equal(act(z), last(z.movedim(1, -1)).movedim(-1, 1))
        assert act(z).is_contiguous()
        assert torch.equal(act.loss(z, y), last.loss(z.movedim(1, -1), y))
        soft = z.softmax(1)
        torch.testing.assert_close(act.loss(z, soft), last.loss(z.movedim(1, -1), soft.movedim(1, -1)))
        assert f"dim={dim}" in repr(act)


FUNCTIONS = (sharmix.sharmix, sharmix.entmax, sharmix.normmax, sharmix.support_size)


@for_every(dim=("a", None, 1.5), made=MODULES | {one.__name__: partial(one, logits(3, 4)) for one in FUNCTIONS})
def test_a_dimension_that_is_no_integer_is_named(dim, made):
    with pytest.raises(TypeError, match=rf"^dim={dim!r} is not allowed; it must be an integer"):
        made(dim=dim)


@for_every(
    "act, expected",
    (
        (sharmix.SharMiX(nonconcave="error"), "SharMiX(q=1.25, r=1.5, temperature=1.0, nonconcave='error')"),
        (sharmix.Sparsemax(dim=1, masked_rows="zeros"), "Sparsemax(dim=1, masked_rows='zeros')"),
        (sharmix.Softmax(), "Softmax()"),
        (sharmix.AlphaReLU(dim=1), "AlphaReLU(alpha=1.5, tau=None, dim=1)"),
    ),
)
def test_a_description_has_what_is_not_usual(act, expected):
    assert repr(act) == expected


@for_every(
    function={
        "sharmix": sharmix.sharmix,
        "entmax": sharmix.entmax,
        "sparsemax": sharmix.sparsemax,
        "normmax": sharmix.normmax,
        "softmax": lambda z, masked_rows: sharmix.Softmax(masked_rows=masked_rows)(z),
        "module": lambda z, masked_rows: sharmix.SharMiX(learned=True, masked_rows=masked_rows).double()(z),
    }
)
def test_a_fully_masked_row(function):
    z = torch.tensor([[1.0, 0.5, -INF], [-INF] * 3], dtype=torch.float64, requires_grad=True)
    assert function(z, masked_rows="nan")[1].isnan().all()
    p = function(z, masked_rows="zeros")
    assert (p[1] == 0).all()
    torch.testing.assert_close(p[0], function(z, masked_rows="nan")[0])
    gradient = torch.autograd.grad((p * torch.arange(3)).sum(), z)[0]
    assert gradient.isfinite().all()
    assert (gradient[1] == 0).all()
    with pytest.raises(ValueError, match=r"masked_rows='zero'.*'nan' or 'zeros'"):
        function(z, masked_rows="zero")


def test_what_is_learned():
    with every_case() as case:
        for learned, names in (
            (False, []),
            (True, ["q", "r"]),
            ("q", ["q"]),
            (("q", "q"), ["q"]),
            (("r", "temperature"), ["r", "temperature"]),
        ):
            with case(learned=learned):
                act = sharmix.SharMiX(q=1.5, r=1.75, temperature=0.5, learned=learned)
                assert [name for name, _ in act.named_parameters()] == names
                act.loss(logits(3, 5).float().requires_grad_(), torch.tensor([0, 1, 2])).backward()
                assert all(parameter.grad != 0 for parameter in act.parameters())
                assert torch.equal(act(logits(3, 5)), sharmix.sharmix(logits(3, 5), 1.5, 1.75, 0.5))
        for learned in (1, None, "p", ("p",), ("q", 3), ([],)):
            message = rf"^learned={re.escape(repr(learned))} is not allowed; .* bool or names .*'q', 'r', 'temperature'"
            with case(learned=learned), pytest.raises(ValueError, match=message):
                sharmix.SharMiX(learned=learned)
    with pytest.raises(ValueError, match=r"objective='brier'.*give learned=True"):
        sharmix.SharMiX(objective="brier")


@for_every(
    "build, message",
    (
        (lambda: sharmix.Softmax(masked_rows="zero"), "masked_rows='zero' is not allowed"),
        (lambda: sharmix.Entmax(alpha=0.5), "^alpha=0.5 is not allowed"),
        (lambda: sharmix.Normmax(alpha=1.0), "^alpha of normmax=1.0 is not allowed"),
        (lambda: sharmix.AlphaReLU(alpha=1.0), "^alpha of alpha-ReLU=1.0 is not allowed"),
        (lambda: sharmix.AlphaReLU(tau=torch.nan), "^tau=nan is not allowed"),
    ),
)
def test_a_wrong_argument_is_refused_when_a_module_is_built(build, message):
    with pytest.raises(ValueError, match=message):
        build()


@for_every(objective=("brier", "log"), options=({"reduction": "sum"}, {"reduction": "none"}, {"ignore_index": 0}))
def test_the_options_of_a_loss_reach_its_objective(objective, options):
    act = sharmix.Entmax(alpha=1.5, learned=True, objective=objective).double()
    z, y = 0.3 * logits(6, 5), torch.tensor([0, 1, 2, 3, 4, 0])
    p = act(z)
    own = p.gather(-1, y[:, None]).squeeze(-1)
    rows = -own.log() if objective == "log" else p.square().sum(-1) - 2 * own + 1
    expected = rows[y != 0].mean() if "ignore_index" in options else rows.sum()
    found = act.loss(z, y, **options).sum()
    torch.testing.assert_close(*(torch.autograd.grad(one, act.alpha, retain_graph=True) for one in (found, expected)))


def test_modules_built_from_one_tensor_do_not_share_it():
    alpha = torch.tensor(1.5)
    first, second = sharmix.Entmax(alpha=alpha), sharmix.Entmax(alpha=alpha)
    first.load_state_dict({"alpha": torch.tensor(2.0)})
    assert [first.alpha, second.alpha, alpha] == [2.0, 1.5, 1.5]
    trained = alpha.clone().requires_grad_()
    assert sharmix.Entmax(alpha=trained).alpha is trained


def test_a_registered_class(monkeypatch):
    monkeypatch.setattr(registry, "_ACTIVATIONS", dict(registry._ACTIVATIONS))

    @sharmix.register("half", alpha=1.5)
    class Half(sharmix.Entmax):
        pass

    assert "half" in sharmix.available_activations()
    assert isinstance(sharmix.build_activation("half"), Half)
    with pytest.raises(ValueError, match="half has no parameter alpha"):
        sharmix.build_activation("half", alpha=2.0)
    with pytest.raises(ValueError, match="'sparsemax' is Sparsemax already"):
        sharmix.register("sparsemax")(Half)
    with pytest.raises(ValueError, match="activation 'sharmix' is SharMiX already"):
        sharmix.register("sharmix")(Half)
    with pytest.raises(TypeError, match="register takes a name"):
        sharmix.register(sharmix.Softmax)
    with pytest.raises(ValueError, match="'entmax_learned' is Entmax already"):
        sharmix.register("entmax_learned", alpha=1.75)(sharmix.Entmax)
    assert sharmix.build_activation("entmax_learned").learned
    sharmix.register("entmax_learned", learned=True)(sharmix.Entmax)  # as where a module is imported again
    with pytest.raises(TypeError, match=r"'number' must be a subclass of sharmix.Activation"):
        sharmix.register("number")(int)


def test_what_a_subclass_overrides_is_used_along_any_dimension():
    class Wide(sharmix.SharMiX):
        def probabilities(self, logits):
            seen.append(logits.dtype)
            return super().probabilities(logits)

    class Sparse(sharmix.SharMiX):
        def orders(self):
            return 2.0, 2.0, 1.0

    z, seen, with_rows = logits(4, 5), [], sharmix.SharMiX(q=torch.full((4, 1), 1.25))
    assert Wide()(z.half()).dtype == Wide(dim=0)(z.half()).dtype == torch.float16
    assert seen == [torch.float32] * 2
    assert torch.equal(Sparse()(z), sharmix.sparsemax(z))
    assert torch.equal(Sparse(dim=0)(z), sharmix.sparsemax(z, dim=0))
    assert torch.equal(Sparse(q=torch.full((4, 1), 1.25))(z), sharmix.sparsemax(z))
    for call in (with_rows, lambda values: with_rows.loss(values, torch.tensor([0]))):
        with pytest.raises(TypeError, match="logits must be a floating-point tensor, got list"):
            call([1.0, 2.0])
