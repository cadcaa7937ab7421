"""Attention a block of queries at a time gives what attention with all scores gives, in less memory."""

import json
import math

import pytest
import torch

import sharmix
from sharmix import _attention, _attention_in_blocks
from tests.sharmix.cases import for_every
from tests.sharmix.test_attention import BATCH, HEADS, KEYS, MASKS, QUERIES, WIDTH, inputs, numbers, per_head

pytestmark = pytest.mark.medium
ACTIVATIONS = {
    "softmax": sharmix.Softmax,
    "sparsemax": sharmix.Sparsemax,
    "alpha_relu": lambda: sharmix.AlphaReLU(tau=0.1),
    "outside the concave region": lambda: sharmix.SharMiX(q=1.75, r=1.25),
    "orders of heads": lambda: sharmix.SharMiX(q=per_head(1.25, 1.5, 1.5, 1.9), r=per_head(1.5, 1.5, 1.9, 1.9)),
    "orders of queries": lambda: sharmix.Entmax(alpha=torch.linspace(1.2, 1.8, QUERIES)[:, None].double()),
    "one learned order": lambda: sharmix.Entmax(alpha=1.5, learned=True).double(),
    "learned orders of heads": lambda: sharmix.SharMiX(q=per_head(1.25, 1.5, 1.5, 1.9), learned=True).double(),
}
BLOCKS = {"two rows": (2, 0), "three heads": (2, 3 * QUERIES * KEYS * 4)}


@pytest.fixture(params=BLOCKS)
def compute(request, monkeypatch):
    """Attention whole or in blocks."""
    rows, size = BLOCKS[request.param]
    monkeypatch.setattr(_attention_in_blocks, "_FEWEST_ROWS", rows)
    monkeypatch.setattr(_attention_in_blocks, "_BYTES", size)

    def attend(way, *arguments, **options):
        monkeypatch.setattr(_attention, "_WHOLE_BYTES", 0 if way == "blocks" else math.inf)
        return sharmix.attention(*arguments, **options)

    return attend


def both_ways(compute, leaves, *arguments, **options):
    """Output and gradients, whole and in blocks."""
    for way in ("whole", "blocks"):
        output = compute(way, *arguments, **options)
        grad = numbers(*output.shape, seed=5).to(output.dtype)
        yield output, *torch.autograd.grad(output, leaves, grad)


@for_every("name, options", MASKS.items(), activation=ACTIVATIONS)
def test_output_and_gradients_are_those_of_all_scores(compute, activation, name, options):
    act = activation()
    arguments = [one.requires_grad_() for one in inputs()]
    leaves = [*arguments, *act.parameters()]
    whole, blocks = both_ways(compute, leaves, *arguments, act, **options)
    torch.testing.assert_close(blocks, whole, rtol=1e-12, atol=1e-12)


@for_every(is_causal=[False, True])
def test_few_keys_with_a_weight_are_enough_for_the_products(compute, monkeypatch, is_causal):
    found, used = [], _attention_in_blocks._used
    monkeypatch.setattr(_attention_in_blocks, "_used", lambda weights: found.append(used(weights)) or found[-1])
    query, key, value = (numbers(1, 2, 64, 8, seed=seed) for seed in range(3))
    arguments = [one.requires_grad_() for one in (30 * query, key, value)]
    whole, blocks = both_ways(compute, arguments, *arguments, "sparsemax", is_causal=is_causal)
    torch.testing.assert_close(blocks, whole, rtol=1e-12, atol=1e-12)
    few = [len(keys) for keys in found if keys is not None]
    assert len(few) > len(found) / 2
    assert max(few) <= 16


@for_every(
    "dtype, error", ((torch.float64, 1e-12), (torch.float32, 1e-6), (torch.bfloat16, 1e-2)), autocast=[False, True]
)
def test_other_dtypes_and_autocast(compute, dtype, error, autocast):
    arguments = [one.to(dtype).requires_grad_() for one in inputs()]
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        whole, blocks = both_ways(compute, arguments, *arguments, "entmax", is_causal=True)
    assert [one.dtype for one in blocks] == [one.dtype for one in whole]
    error = 1e-2 if autocast and dtype != torch.float64 else error
    for found, expected in zip(blocks, whole, strict=True):
        torch.testing.assert_close(found, expected, rtol=error, atol=error * expected.abs().max().item())


def test_grouped_heads_a_scale_and_more_queries_than_keys(compute):
    query, key, value = numbers(BATCH, HEADS, 9, WIDTH), *inputs(heads=2)[1:]
    scale = sharmix.LogLengthScale(HEADS).double()
    arguments = [one.requires_grad_() for one in (query, key, value)]
    options = {"enable_gqa": True, "is_causal": True, "length_scale": scale}
    whole, blocks = both_ways(compute, [*arguments, *scale.parameters()], *arguments, "entmax", **options)
    torch.testing.assert_close(blocks, whole, rtol=1e-12, atol=1e-12)


def test_dropout_leaves_out_the_same_weights_in_the_backward_pass(compute):
    arguments = [one.requires_grad_() for one in inputs()]

    def drop(*given):
        torch.manual_seed(1)
        return compute("blocks", *given, "entmax", dropout_p=0.4, is_causal=True)

    assert torch.autograd.gradcheck(drop, arguments)
    assert torch.autograd.gradgradcheck(drop, [one[:1, :1].detach().requires_grad_() for one in arguments])
    assert not compute("blocks", *arguments, "entmax", dropout_p=1.0).any()
    with pytest.raises(ValueError, match=r"dropout_p=1.5 is not allowed; it must be between 0 and 1"):
        compute("blocks", *arguments, "entmax", dropout_p=1.5)
    torch.manual_seed(2)
    ones = torch.ones(1, 1, 4000, 1)
    kept = compute("blocks", ones, ones[:, :, :5], ones[:, :, :5], "softmax", dropout_p=0.4)
    assert kept.mean().item() == pytest.approx(1, abs=0.03)
    assert kept.unique().numel() > 3


def test_second_derivatives_and_batched_gradients(compute):
    arguments = [one[:1, :2].clone().requires_grad_() for one in inputs()]
    act = sharmix.Entmax(alpha=1.5)
    assert torch.autograd.gradgradcheck(lambda *given: compute("blocks", *given, act, is_causal=True), arguments)
    output = compute("blocks", *arguments, act)
    grads = numbers(3, *output.shape)
    batched = torch.autograd.grad(output, arguments, grads, is_grads_batched=True, retain_graph=True)
    for number, grad in enumerate(grads):
        single = torch.autograd.grad(output, arguments, grad, retain_graph=True)
        torch.testing.assert_close([one[number] for one in batched], [*single])


def test_what_is_frozen_gets_no_gradient(compute):
    for wanted in range(3):
        arguments = [one.requires_grad_(place == wanted) for place, one in enumerate(inputs())]
        whole, blocks = both_ways(compute, [arguments[wanted]], *arguments, "entmax", **MASKS["bool"])
        torch.testing.assert_close(blocks, whole, rtol=1e-12, atol=1e-12)


def test_a_query_that_sees_no_key_leaves_its_neighbours_few_keys(compute, monkeypatch):
    found, used = [], _attention_in_blocks._used
    monkeypatch.setattr(_attention_in_blocks, "_used", lambda weights: found.append(used(weights)) or found[-1])
    query, key, value = (numbers(1, 1, 64, 8, seed=seed) for seed in range(3))
    mask = torch.ones(64, 64, dtype=torch.bool)
    mask[::2] = False
    compute("blocks", 30 * query, key, value, "sparsemax", mask)
    assert sum(keys is not None for keys in found) > len(found) / 2


class Doubled(sharmix.Softmax):
    """Weights that do not come from `probabilities` alone."""

    def forward(self, logits):
        return 2 * super().forward(logits)


class Shifted(sharmix.Activation):
    """An activation of a user's own, with a parameter for each head."""

    def __init__(self):
        super().__init__(-1)
        self.factor = torch.nn.Parameter(torch.ones(HEADS, 1, 1, dtype=torch.float64))

    def probabilities(self, logits):
        return sharmix.sparsemax(logits * self.factor)

    def entropy(self, probabilities):
        return -probabilities.square().sum(-1) / 2


def test_what_blocks_cannot_do_is_computed_whole(compute):
    query, key, value = (one.requires_grad_() for one in inputs())
    alpha = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
    bias = torch.zeros(QUERIES, KEYS, dtype=torch.float64, requires_grad=True)
    own, calibrated, hooked = Shifted(), sharmix.AlphaReLU(), sharmix.Sparsemax()
    hooked.register_forward_hook(lambda module, given, weights: 3 * weights)
    unseen = torch.ones(7, KEYS, dtype=torch.bool)  # makes seven queries of one
    for activation, options, leaf in (
        (lambda scores: sharmix.entmax(scores, alpha=alpha), {}, alpha),
        (own, {}, own.factor),
        ("entmax", {"attn_mask": bias}, bias),
        (hooked, {}, query),
        (Doubled(), {}, query),
    ):
        whole, blocks = both_ways(compute, [leaf], query, key, value, activation, **options)
        torch.testing.assert_close(blocks, whole, rtol=0, atol=0)
    of_one = [compute(way, query[..., :1, :], key, value, "entmax", unseen) for way in ("whole", "blocks")]
    assert torch.equal(*of_one)
    with pytest.raises(ValueError, match=r"of shape \(10, 1\) does not broadcast"):
        compute("blocks", query, key, value, sharmix.Entmax(alpha=torch.full((2 * QUERIES, 1), 1.5)))
    compute("blocks", query, key, value, calibrated)
    scores = query @ key.mT / math.sqrt(WIDTH)
    expected = sharmix.AlphaReLU()
    expected(scores)
    torch.testing.assert_close(calibrated.tau, expected.tau)  # the mean over all rows
    batched = torch.func.vmap(lambda q, k, v: compute("blocks", q, k, v, "entmax"))(query, key, value)
    torch.testing.assert_close(batched, compute("whole", query, key, value, "entmax"))


# What torch allocates, not what the process holds, because the system gives and takes pages as it likes. What the
# kernels allocate themselves does not count.
def test_scores_of_many_queries_are_not_all_in_memory(tmp_path):
    count = 8192
    query, key, value = (torch.randn(1, 1, count, 8, requires_grad=True) for _ in range(3))
    mask = torch.ones(count, 1, dtype=torch.bool).expand(count, count)  # which has few numbers in memory
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        sharmix.attention(query, key, value, "entmax", mask).sum().backward()
    profile.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text("utf-8"))["traceEvents"]
    allocated = [event["args"]["Total Allocated"] for event in events if event.get("name") == "[memory]"]
    assert max(allocated) - allocated[0] < count**2 * 4 / 32  # a part of all scores, in bytes
