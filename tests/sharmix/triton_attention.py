"""Attention by the CUDA kernels: compiled, on a GPU, as `make gpu` runs this file; or by Triton's interpreter.

Triton reads `TRITON_INTERPRET` when it is imported, so `test_triton.py` runs this file in a process of its own:
`TRITON_INTERPRET=1 python -m pytest tests/sharmix/triton_attention.py`.
"""

import itertools
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch

import sharmix
from sharmix import _attention_in_kernels, _learned_range
from sharmix._operators.triton import attention
from tests.sharmix.cases import for_every
from tests.sharmix.interpreter import INTERPRETED, patch_the_language_once_a_launch  # noqa: F401 (a fixture)

DEVICE = "cpu" if INTERPRETED else "cuda"
BATCH, HEADS = 2, 2
LONG = 70 if INTERPRETED else 1000  # queries and keys; no multiple of a block
GOAL, GOAL_OF_ORDERS = 1e-5, 5e-5
RATIO = 1.3  # of errors in half precision, to those of softmax attention
pytestmark = pytest.mark.filterwarnings("ignore")  # the interpreter's own, on NaN and on NumPy's scalars


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


@for_every(problem=CASES)
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
