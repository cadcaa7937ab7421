"""Attention by the CUDA kernels: compiled, where there is a GPU; or on the CPU, by Triton's interpreter.

Triton reads `TRITON_INTERPRET` when it is imported, so `test_triton.py` runs this file in a process of its own:
`TRITON_INTERPRET=1 python -m pytest tests/sharmix/triton_attention.py`.
"""

from functools import partial
from typing import Any, NamedTuple

import pytest
import torch

import sharmix
from sharmix import _arguments, _attention_in_kernels, _learned_range
from sharmix._operators.triton import attention
from tests.sharmix.cases import every_case
from tests.sharmix.interpreter import INTERPRETED, patch_the_language_once_a_launch  # noqa: F401 (a fixture)

DEVICE = "cpu" if INTERPRETED else "cuda"
BATCH, HEADS = 2, 2
LONG = 70 if INTERPRETED else 1000  # queries and keys; no multiple of a block
GOAL, GOAL_OF_ORDERS = 1e-5, 5e-5
RATIO = 1.3  # of errors in half precision, to those of softmax attention
pytestmark = pytest.mark.filterwarnings("ignore")  # the interpreter's own, on NaN and on NumPy's scalars


in_the_interpreter = pytest.mark.skipif(not INTERPRETED, reason="on a GPU these would be compiled for a minute")


class Case(NamedTuple):
    """The options of a call; `learned` orders have a value for each head, near those given."""

    q: float = 1.25
    r: float = 1.5
    learned: tuple[str, ...] = ()
    others: int = HEADS  # heads of keys and values
    queries: int = LONG
    head: int = 32
    value_head: int = 32
    is_causal: bool = False
    has_mask: bool = False


# Each is compiled by itself, which takes a GPU's machine half a minute; the interpreter runs more cases.
CASES = {
    "any β, a mask, few queries": Case(1.3, 1.4, queries=LONG // 2, head=48, value_head=24, has_mask=True),
    "β = 1, head 128": Case(2.0, 2.0, head=128, value_head=128),
    "learned, grouped, causal": Case(1.3, 1.6, ("q", "r", "temperature"), others=1, is_causal=True),
}
if INTERPRETED:
    CASES |= {
        "β = 4, causal": Case(is_causal=True, others=1),
        "β = 4, more queries than keys, causal": Case(queries=LONG + 30, is_causal=True),
        "β = 2, a mask": Case(1.5, 1.5, head=48, value_head=48, has_mask=True, others=1),
        "β = 1, causal": Case(2.0, 2.0, is_causal=True),
        "on the border, causal": Case(4 / 3, 1.25, is_causal=True),
        "β = 2, learned r, a mask": Case(1.5, 1.6, ("r",), has_mask=True),
    }


@pytest.fixture(autouse=True)
def calls(monkeypatch):
    """How many calls the kernels have taken."""
    found, forward = [], attention.forward
    monkeypatch.setattr(attention, "forward", lambda *arguments: found.append(arguments) or forward(*arguments))
    monkeypatch.setitem(_learned_range.RANGES, "r", (1.5, 2.0))  # so that the host knows a learned r to be smooth
    if INTERPRETED:
        monkeypatch.setattr(_attention_in_kernels, "backend", lambda device: "triton")
        monkeypatch.setattr(attention, "_blocks_of", lambda query, value: attention.Blocks(32, 32, 1, 1))
        monkeypatch.setattr(attention, "_AT_ONCE", 16)
    return found


def inputs(case, dtype=torch.float32, sharpness=2.0):
    """Query, key, value, the gradient by the output, and the arguments of attention."""
    generator = torch.Generator().manual_seed(0)
    shapes = [
        (HEADS, case.queries, case.head),
        (case.others, LONG, case.head),
        (case.others, LONG, case.value_head),
        (HEADS, case.queries, case.value_head),
    ]
    query, key, value, above = (torch.randn(BATCH, *shape, generator=generator).to(DEVICE, dtype) for shape in shapes)
    mask = None
    if case.has_mask:
        mask = torch.rand(BATCH, 1, 1, LONG, generator=generator) < 0.7
        mask[-1] = False
        mask = mask.to(DEVICE)
    options = {"attn_mask": mask, "is_causal": case.is_causal, "enable_gqa": case.others < HEADS}
    return [(query * sharpness).requires_grad_(), key.requires_grad_(), value.requires_grad_()], above, options


def activation(case):
    starts: dict[str, Any] = {"q": case.q, "r": case.r, "temperature": 0.8}
    for name in case.learned:
        spread = torch.linspace(0, 0.1, HEADS, device=DEVICE).view(HEADS, 1, 1)
        starts[name] = starts[name] + spread
    return sharmix.SharMiX(**starts, learned=case.learned)


def computed(leaves, above, weigh, options):
    """The output and its gradients."""
    output = sharmix.attention(*leaves[:3], weigh, **options)
    return output.detach(), *torch.autograd.grad(output, leaves, above.to(output))


def expected(leaves, above, act, options):
    """The same in float64 on the CPU, without kernels of attention; `act` is None for softmax."""
    leaves = [leaf.detach().cpu().double().requires_grad_() for leaf in leaves]
    options = options | {"attn_mask": None if options["attn_mask"] is None else options["attn_mask"].cpu()}
    weigh = partial(torch.softmax, dim=-1)
    if act is not None:
        own = dict(zip(act.learned, leaves[3:], strict=True))
        weigh = partial(sharmix.sharmix, **{name: own.get(name, getattr(act, name)) for name in act._starts})
    return computed(leaves, above.cpu(), weigh, options)


def error_of(found, true):
    """The largest difference, of the largest entry."""
    return ((found.cpu().double() - true).abs().max() / true.abs().max().clamp_min(1)).item()


@pytest.mark.parametrize("problem", CASES.values(), ids=CASES)
def test_output_and_gradients(calls, problem):
    act = activation(problem)
    leaves, above, options = inputs(problem)
    leaves += [getattr(act, of) for of in act.learned]
    calls.clear()
    found, true = computed(leaves, above, act, options), expected(leaves, above, act, options)
    assert len(calls) == 1
    errors = [error_of(*pair) for pair in zip(found, true, strict=True)]
    assert max(errors[:4]) <= GOAL, errors
    assert max(errors[4:], default=0.0) <= GOAL_OF_ORDERS, errors


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16] if INTERPRETED else [torch.bfloat16])
def test_half_precision_beside_softmax_attention(calls, dtype):
    case = Case(is_causal=True, head=32 if INTERPRETED else 128, value_head=32 if INTERPRETED else 128)
    leaves, above, options = inputs(case, dtype, sharpness=1.0)
    softmax = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=True)
    softmax = softmax.detach(), *torch.autograd.grad(softmax, leaves, above)
    act = activation(case)
    found = computed(leaves, above, act, options)
    assert len(calls) == 1

    def errors(found, act):
        true = expected(leaves, above, act, options)
        return [((mine.cpu().double() - one).norm() / one.norm()).item() for mine, one in zip(found, true, strict=True)]

    ratios = [mine / theirs for mine, theirs in zip(errors(found, act), errors(softmax, None), strict=True)]
    assert max(ratios) <= RATIO, ratios


@in_the_interpreter
def test_heads_and_batches_broadcast(calls):
    numbers = torch.randn(2, 2, 6, 8, generator=torch.Generator().manual_seed(0))
    per_head = torch.linspace(1.2, 1.9, 2).view(2, 1, 1)
    mask = torch.arange(6) < torch.tensor([4, 0]).view(2, 1, 1, 1)
    with every_case() as case:
        for name, query, key, options in (
            ("grouped heads", numbers, numbers[:, :1], {"enable_gqa": True}),
            ("one head, broadcast", numbers, numbers[:, :1], {"is_causal": True}),
            ("queries of one head", numbers[:, :1], numbers, {}),
            ("no batch", numbers, numbers[0], {}),
            ("one example", numbers[:1], numbers, {"attn_mask": mask[:1, 0]}),
            ("three dimensions", numbers[0], numbers[1], {"attn_mask": mask[0, 0]}),
            ("two dimensions", numbers[0, 0], numbers[1, 0], {"scale": 0.3}),
            ("not contiguous", numbers.mT, numbers.mT, {"masked_rows": "nan"}),
            ("nothing is seen", numbers, numbers, {"attn_mask": mask, "masked_rows": "nan"}),
            ("a longer scale", numbers, numbers, {"length_scale": sharmix.LogLengthScale(2), "is_causal": True}),
        ):
            with case(name=name):
                calls.clear()
                act = sharmix.Entmax(alpha=per_head if max(query.dim(), key.dim()) > 2 else 1.5, learned=True)
                found = sharmix.attention(query, key, key, act, **options)
                true = sharmix.attention(query.double(), key.double(), key.double(), act, **options)
                assert len(calls) == 1
                torch.testing.assert_close(found.double(), true, rtol=0, atol=GOAL, equal_nan=True)


@in_the_interpreter
def test_a_score_that_is_not_finite_makes_nan_of_queries_that_see_it():
    query, key = torch.randn(2, 1, 40, 8, generator=torch.Generator().manual_seed(0)).unbind()
    for value in (torch.nan, torch.inf):
        changed, wrong = key.clone(), query.clone()
        changed[0, 20, 3], wrong[0, 5, 2] = value, value
        for orders in ((1.25, 1.5), (1.3, 1.6)):
            act = sharmix.SharMiX(*orders)
            for given in ((query, changed, key), (wrong, key, key)):
                output = sharmix.attention(*given, act, is_causal=True)
                true = sharmix.attention(*(one.double() for one in given), act, is_causal=True)
                assert torch.equal(output.isnan(), true.isnan())
                assert true.isnan().any()


@in_the_interpreter
def test_a_learned_order_out_of_range_makes_nan_of_its_head():
    numbers = torch.randn(3, 6, 8, generator=torch.Generator().manual_seed(0))
    act = sharmix.SharMiX(q=torch.full((3, 1, 1), 1.3), r=1.6, learned=["q"])
    for value in (2.5, torch.nan, 0.5):
        act.q.data[1] = value
        output = sharmix.attention(numbers, numbers, numbers, act)
        assert output[1].isnan().all()
        assert output[[0, 2]].isfinite().all()


@in_the_interpreter
def test_autocast(calls):
    numbers = torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(0))
    with torch.autocast("cpu", torch.bfloat16):
        found = sharmix.attention(numbers, numbers, numbers, "entmax", length_scale=sharmix.LogLengthScale(2))
    assert len(calls) == 1
    assert found.dtype == torch.bfloat16
    true = sharmix.attention(*[numbers.double()] * 3, "entmax", length_scale=sharmix.LogLengthScale(2))
    torch.testing.assert_close(found.double(), true.double(), rtol=0, atol=3e-2)


@in_the_interpreter
def test_second_derivatives_are_those_of_all_scores(calls):
    generator = torch.Generator().manual_seed(0)
    numbers = torch.randn(4, 2, 5, 8, generator=generator)
    mask = torch.arange(5) < torch.tensor([4]).view(1, 1, 1)
    for options in ({"is_causal": True}, {"attn_mask": mask}):
        found = []
        for dtype in (torch.float32, torch.float64):
            act = sharmix.SharMiX(q=torch.full((2, 1, 1), 1.3), r=1.6, learned=["q", "temperature"]).to(dtype)
            query, key, value, above = (one.to(dtype).clone().requires_grad_() for one in numbers)
            leaves = [query, key[:1], value[:1], *act.parameters()]
            output = sharmix.attention(*leaves[:3], act, **options)
            first = torch.autograd.grad(output, leaves, above, create_graph=True)
            total = sum((one * one).sum() for one in first)
            found.append(torch.autograd.grad(total, [*leaves, above]))
        assert len(calls) == 1
        calls.clear()
        for mine, theirs in zip(*found, strict=True):
            torch.testing.assert_close(mine.double(), theirs, rtol=1e-3, atol=1e-3)


@in_the_interpreter
def test_only_what_is_wanted_is_computed(monkeypatch):
    numbers, launched, launch = torch.randn(2, 6, 8), [], attention.launch
    monkeypatch.setattr(
        attention,
        "launch",
        lambda kernel, *given, **of: launched.append(kernel.__name__) or launch(kernel, *given, **of),
    )
    query, key = numbers.clone().requires_grad_(), numbers.clone().requires_grad_()
    torch.autograd.grad(sharmix.attention(query, numbers, numbers, "entmax").sum(), query)
    torch.autograd.grad(sharmix.attention(numbers, key, numbers, "entmax").sum(), key)
    with torch.no_grad():
        sharmix.attention(query, key, numbers, "entmax")
    names = "attention_forward", "queries_backward", "keys_backward"
    assert launched == [*names[:2], *names, names[0]]


@in_the_interpreter
def test_what_the_kernels_do_not_take_goes_another_way(calls):
    numbers, per_head = torch.randn(2, 6, 8), torch.full((2, 1, 1), 1.5)
    for act in (
        "softmax",
        sharmix.AlphaReLU(tau=0.1),
        sharmix.Entmax(alpha=1.0),
        sharmix.Entmax(alpha=2.5),
        sharmix.Entmax(alpha=per_head),  # whose values the host does not know
        sharmix.Entmax(alpha=per_head.expand(2, 6, 1), learned=True),
        sharmix.SharMiX(1.75, 1.25),
        sharmix.SharMiX(1.5, 3.5),
        lambda scores: sharmix.entmax(scores, alpha=1.5),
    ):
        sharmix.attention(numbers, numbers, numbers, act)
    sharmix.attention(*[numbers.double()] * 3, "entmax")
    sharmix.attention(numbers, numbers, numbers, sharmix.SharMiX(1.001, 1.5))  # whose gradients would lose digits
    for options in (
        {"scale": torch.tensor(0.3)},
        {"attn_mask": torch.ones(6, 6, dtype=torch.bool)},
        {"attn_mask": torch.ones(2, 1, 6, dtype=torch.bool)},
        {"attn_mask": torch.zeros(1, 6)},
        {"dropout_p": 0.5},
        {"scale": -1.0},
    ):
        sharmix.attention(numbers, numbers, numbers, "entmax", **options)
    wide = torch.randn(2, 6, 129)
    sharmix.attention(wide, wide, wide, "entmax")
    sharmix.attention(*[numbers.bfloat16()] * 3, "entmax", length_scale=sharmix.LogLengthScale(2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "_MOST_BLOCKS", 0)
        sharmix.attention(numbers, numbers, numbers, "entmax")
        patch.undo()
        patch.setattr(_arguments, "CHECKS_EVERYWHERE", True)
        sharmix.attention(numbers, numbers, numbers, "entmax")
    assert not calls
    learned = sharmix.SharMiX(learned=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(_learned_range.RANGES, "r", _learned_range.ORDERS)
        sharmix.attention(numbers, numbers, numbers, learned)
        assert not calls
        sharmix.attention(numbers, numbers, numbers, sharmix.SharMiX(learned=True, nonconcave="error"))
        assert len(calls) == 1
    sharmix.attention(numbers, numbers, numbers, learned)
    assert len(calls) == 2
