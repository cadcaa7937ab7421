"""docs/from_entmax.md: it has all of the package, and its two scripts give the same results."""

import ast
import inspect
import re
from pathlib import Path

import entmax
import pytest
import torch

import sharmix

PAGE = (Path(__file__).parents[2] / "docs" / "from_entmax.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n# (both|entmax|sharmix)\n(.*?)```", PAGE, re.DOTALL)
TOLERANCE = float(re.search(r"agree to (\S+) in float64", PAGE)[1])
NAMES = {name: getattr(entmax, name) for name in dir(entmax) if not name.startswith("_")}
CALLABLES = {name: value for name, value in NAMES.items() if callable(value)}


def blocks(package):
    return [code for name, code in BLOCKS if name == package]


def results(package):
    """What the package's script computes, by name."""
    shared = {}
    exec("".join(blocks("both")), shared)
    after = dict(shared)
    exec("".join(blocks(package)), after)
    return {name: value for name, value in after.items() if name not in shared}


def assigned(code):
    """The names that a block assigns, in its order."""
    return [ast.unparse(line.targets[0]) for line in ast.parse(code).body]


def test_the_scripts_give_the_same_results():
    theirs, ours = results("entmax"), results("sharmix")
    assert theirs.keys() == ours.keys()
    assert len(theirs) > len(CALLABLES)
    assert {value.dtype for value in theirs.values()} == {torch.float64}
    torch.testing.assert_close(ours, theirs, rtol=0, atol=TOLERANCE)  # names what differs


def test_the_scripts_correspond_line_by_line():
    pairs = list(zip(blocks("entmax"), blocks("sharmix"), strict=True))
    assert pairs
    for theirs, ours in pairs:
        assert assigned(theirs) == assigned(ours)
        assert theirs.count("\n") == ours.count("\n")


def test_the_script_uses_all_of_the_package():
    nodes = ast.walk(ast.parse("".join(blocks("entmax"))))
    used = {node.attr for node in nodes if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "entmax"}
    assert used == set(CALLABLES)


def test_the_table_has_every_name_with_its_options():
    rows = re.findall(r"^\| `(\w+)\((.*?)\)` \|", PAGE, re.MULTILINE)
    assert dict(rows) == {name: ", ".join(inspect.signature(value).parameters) for name, value in CALLABLES.items()}
    assert len(rows) == len(CALLABLES)
    for name in NAMES.keys() - CALLABLES.keys():
        assert f"`entmax.{name}`" in PAGE


def test_the_page_names_only_what_sharmix_has():
    assert [name for name in set(re.findall(r"\bsharmix\.(\w+)", PAGE)) if not hasattr(sharmix, name)] == []


def test_what_the_page_says_of_the_package():
    z, y = torch.randn(3, 5, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, -100])
    once = entmax.sparsemax_bisect(z, n_iter=1, ensure_sum_one=False)
    assert torch.equal(once, entmax.sparsemax_bisect(z))  # it ignores both
    assert entmax.entmax_bisect_loss(z, y.clamp_min(0), torch.full((3, 1), 1.5)).shape == (3, 3)
    assert sharmix.entmax_loss(z, y, torch.full((3, 1), 1.5), reduction="none").shape == (3,)
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
        loss(z.clone().requires_grad_(), y.clamp_min(0), alpha).sum().backward()
        assert (alpha.grad is not None) == gives
    assert entmax.entmax_bisect(z, 0.5).min() > 0
    with pytest.raises(ValueError, match=r"alpha=0\.5 is not allowed"):
        sharmix.entmax(z, 0.5)
