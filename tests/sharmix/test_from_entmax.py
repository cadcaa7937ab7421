"""docs/from_entmax.md: its tables have all of the package, and both columns give the same results."""

import ast
import inspect
import re
from pathlib import Path

import entmax
import pytest
import torch

import sharmix

PAGE = (Path(__file__).parents[2] / "docs" / "from_entmax.md").read_text(encoding="utf-8")
FIRST, *OTHERS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
ROWS = re.findall(r"^\| `(.*)` \| `(.*)` \|$", PAGE, re.MULTILINE)
TOLERANCE = float(re.search(r"agree to (\S+) in float64", PAGE)[1])
NAMES = {name: getattr(entmax, name) for name in dir(entmax) if not name.startswith("_")}
CALLABLES = {name: value for name, value in NAMES.items() if callable(value)}


@pytest.fixture
def given():
    """The names that the page defines before its tables."""
    shared = {}
    exec(FIRST, shared)
    return shared


@pytest.mark.parametrize(("theirs", "ours"), ROWS)
def test_both_columns_give_the_same(theirs, ours, given):
    assert "entmax." in theirs
    assert "sharmix." in ours
    expected, found = eval(theirs, given), eval(ours, given)
    torch.testing.assert_close(found, expected, rtol=0, atol=TOLERANCE)
    assert {value.dtype for value in (found if isinstance(found, tuple) else [found])} == {torch.float64}


def test_the_other_code_of_the_page_runs(given):
    for code in OTHERS:
        exec(code, given)
    assert OTHERS


def test_the_left_column_has_every_name_of_the_package_with_its_options():
    shown = {name: set() for name in CALLABLES}
    for call in [node for theirs, _ in ROWS for node in ast.walk(ast.parse(theirs)) if isinstance(node, ast.Call)]:
        package, _, name = ast.unparse(call.func).partition(".")
        if package == "entmax" and name in shown:
            options = [*inspect.signature(CALLABLES[name]).parameters]
            shown[name] |= {*options[: len(call.args)], *(keyword.arg for keyword in call.keywords)}
    assert shown == {name: {*inspect.signature(value).parameters} for name, value in CALLABLES.items()}
    for name in NAMES.keys() - CALLABLES.keys():
        assert f"`entmax.{name}`" in PAGE


def test_the_page_names_only_what_sharmix_has():
    assert [name for name in set(re.findall(r"\bsharmix\.(\w+)", PAGE)) if not hasattr(sharmix, name)] == []


def test_what_the_page_says_of_the_package():
    z, y = torch.randn(3, 5, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, -100])
    once = entmax.sparsemax_bisect(z, n_iter=1, ensure_sum_one=False)
    assert torch.equal(once, entmax.sparsemax_bisect(z))  # it ignores both
    assert entmax.entmax_bisect_loss(z, y.clamp_min(0), torch.full((3, 1), 1.5)).shape == (3, 3)
    assert sharmix.entmax_loss(z, y, alpha=torch.full((3, 1), 1.5), reduction="none").shape == (3,)
    with pytest.raises(RuntimeError, match="index -100 is out of bounds"):
        entmax.SparsemaxLoss()(z, y)
    masked = torch.where(torch.arange(5) == 4, -torch.inf, z)
    assert entmax.sparsemax_loss(masked, y.clamp_min(0)).isnan().any()
    assert sharmix.sparsemax_loss(masked, y).isfinite()
    with pytest.raises(RuntimeError, match="index -1 is out of bounds"):
        entmax.entmax15(torch.full((1, 5), -torch.inf))
    assert entmax.entmax_bisect(torch.full((1, 5), -torch.inf)).isnan().all()
    for loss, gives in (entmax.entmax_bisect_loss, False), (sharmix.entmax_loss, True):
        alpha = torch.tensor(1.5, requires_grad=True)
        loss(z.clone().requires_grad_(), y.clamp_min(0), alpha=alpha).sum().backward()
        assert (alpha.grad is not None) == gives
    assert entmax.entmax_bisect(z, 0.5).min() > 0
    with pytest.raises(ValueError, match=r"alpha=0\.5 is not allowed"):
        sharmix.entmax(z, alpha=0.5)


def test_the_registered_baseline_is_the_packages_own_bisection():
    act, z = sharmix.build_activation("entmax_package", alpha=1.5), 2 * torch.randn(6, 20).double()
    torch.testing.assert_close(act(z), entmax.entmax_bisect(z, alpha=1.5))
    loss = act.loss(z, torch.arange(6), reduction="none")
    torch.testing.assert_close(loss, entmax.entmax_bisect_loss(z, torch.arange(6), alpha=1.5))


def test_a_number_by_position_that_means_another_thing_in_the_package_or_in_torch_is_refused(given):
    z, y = given["z"], given["y"]
    for number in (1, 1.5, torch.ones(10)):  # dim, alpha, k or n_iter; of cross-entropy, the weights of the classes
        for function in (sharmix.entmax, sharmix.normmax, sharmix.alpha_relu):
            with pytest.raises(TypeError, match="takes 1 positional argument but 2"):
                function(z, number)
        for loss in (sharmix.entmax_loss, sharmix.normmax_loss, sharmix.alpha_relu_loss, sharmix.sparsemax_loss):
            with pytest.raises(TypeError, match="takes 2 positional arguments but 3"):
                loss(z, y, number)
        for module in (sharmix.Entmax, sharmix.Normmax, sharmix.AlphaReLU):
            with pytest.raises(TypeError, match="takes 1 positional argument but 2"):
                module(number)
        for module in (sharmix.EntmaxLoss, sharmix.NormmaxLoss, sharmix.AlphaReLULoss, sharmix.SparsemaxLoss):
            with pytest.raises(TypeError, match="takes 1 positional argument but 2"):
                module(number)


def test_a_whole_number_alone_is_no_order_of_sharmix(given):
    z = given["z"]
    for call in (lambda: sharmix.sharmix(z, 1), lambda: sharmix.SharMiX(1)):
        with pytest.raises(TypeError, match=r"^q=1, a whole number without r, .* dimension; write q=1\.0, or dim=1$"):
            call()
    assert sharmix.fenchel_young_loss(z, given["y"], 1) == sharmix.SharMiXLoss(1)(z, given["y"])  # a loss has no dim
    assert sharmix.sharmix(z, 1, 1.5).equal(sharmix.sharmix(z, q=1.0))
    assert sharmix.sharmix(z, 2, dim=0).equal(sharmix.sharmix(z, q=2.0, dim=0))


def test_a_number_by_position_that_means_the_same_is_taken(given):
    z = given["z"]
    torch.testing.assert_close(sharmix.sparsemax(z, 0), entmax.sparsemax(z, 0))
    torch.testing.assert_close(sharmix.Sparsemax(0)(z), entmax.Sparsemax(0)(z))
    torch.testing.assert_close(sharmix.Softmax(0)(z), z.softmax(0))
