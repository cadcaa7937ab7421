"""Attention: the function beside torch's and beside a slow loop, and its masks, orders, scales and refusals."""

import math

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

import sharmix
from sharmix import _attention, _attention_in_blocks
from tests.sharmix import reference
from tests.sharmix.cases import for_every

INF = float("inf")
BATCH, HEADS, QUERIES, KEYS, WIDTH = 2, 4, 5, 7, 3


WAYS = ["whole", "some rows of a head at a time", "some heads at a time"]


@pytest.fixture(autouse=True, params=[WAYS[0], *(pytest.param(way, marks=pytest.mark.medium) for way in WAYS[1:])])
def each_way(request, monkeypatch):
    """Both ways to compute attention; blocks of two rows, or of two heads."""
    if request.param != "whole":
        monkeypatch.setattr(_attention, "_WHOLE_BYTES", 0)
        monkeypatch.setattr(_attention_in_blocks, "_FEWEST_ROWS", 2)
        monkeypatch.setattr(_attention_in_blocks, "_BYTES", 0 if "rows" in request.param else 2 * QUERIES * KEYS * 4)
    return request.param


def numbers(*shape, dtype=torch.float64, seed=0):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def inputs(dtype=torch.float64, heads=HEADS):
    query = 3 * numbers(BATCH, HEADS, QUERIES, WIDTH, dtype=dtype)
    key, value = (numbers(BATCH, heads, KEYS, WIDTH + i, dtype=dtype, seed=i + 1) for i in range(2))
    return query, key, value


def bool_mask(*shape):
    """A quarter of the keys is hidden, and all of them from the last query."""
    mask = numbers(*shape) > -0.7
    mask[..., -1, :] = False
    return mask


def float_mask(*shape):
    return numbers(*shape, seed=9).masked_fill(~bool_mask(*shape), -INF)


MASKS = {
    "none": {},
    "causal": {"is_causal": True},
    "bool": {"attn_mask": bool_mask(QUERIES, KEYS)},
    "bool for each example": {"attn_mask": bool_mask(BATCH, 1, QUERIES, KEYS)},
    "bool for each head": {"attn_mask": bool_mask(HEADS, QUERIES, KEYS)},
    "bool for each query": {"attn_mask": bool_mask(QUERIES, 1)},
    "padding": {"attn_mask": torch.arange(KEYS) < torch.tensor([3, 0]).reshape(2, 1, 1, 1)},
    "float": {"attn_mask": float_mask(QUERIES, KEYS)},
    "float for each example and head": {"attn_mask": float_mask(BATCH, HEADS, QUERIES, KEYS)},
    "scale": {"scale": 0.3, "is_causal": True},
}


def in_dtype(options, dtype):
    return {
        name: value.to(dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value
        for name, value in options.items()
    }


@pytest.mark.parametrize("each_way", WAYS, indirect=True)  # in the quick tests, too
@for_every("dtype, error", ((torch.float64, 1e-14), (torch.float32, 1e-6), (torch.bfloat16, 2e-2)), options=MASKS)
def test_softmax_is_the_attention_of_torch(dtype, error, options):
    options, arguments = in_dtype(options, dtype), inputs(dtype)
    expected = scaled_dot_product_attention(*arguments, **options)
    for softmax in ("softmax", sharmix.SharMiX(q=1.0, r=1.0), lambda z: z.softmax(-1)):
        found = sharmix.attention(*arguments, softmax, **options)
        torch.testing.assert_close(found, expected, rtol=0, atol=error)


def test_queries_without_features_see_all_keys_alike_as_in_torch():
    query, key, value = torch.empty(2, 3, 0), torch.empty(2, 4, 0), torch.randn(2, 4, 5)
    expected = scaled_dot_product_attention(query, key, value)
    for activation in ("softmax", "entmax"):
        torch.testing.assert_close(sharmix.attention(query, key, value, activation), expected)


QUERY, KEY, VALUE = inputs()
MASK = MASKS["bool"]["attn_mask"]


@for_every(
    "shapes, arguments, options",
    [
        ("grouped heads", (QUERY, *inputs(heads=2)[1:]), {"enable_gqa": True}),
        ("one head for all", (QUERY, *inputs(heads=1)[1:]), {"enable_gqa": True, "is_causal": True}),
        ("one head, broadcast", (QUERY, *inputs(heads=1)[1:]), {}),
        ("no batch", (QUERY, KEY[0], VALUE[0]), {"is_causal": True}),
        ("one example", (QUERY, KEY[:1], VALUE[:1]), {}),
        ("no keys", (QUERY, KEY[:, :, :0], VALUE[:, :, :0]), {"attn_mask": bool_mask(QUERIES, 0)}),
        ("no batch and no heads", (QUERY[0, 0], KEY[0, 0], VALUE[0, 0]), {}),
    ],
)
def test_heads_and_batches_broadcast_as_in_torch(shapes, arguments, options):
    expected = scaled_dot_product_attention(*arguments, **options)
    torch.testing.assert_close(sharmix.attention(*arguments, "softmax", **options), expected)


def slow_attention(query, key, value, orders, bias, factor):
    """One query at a time, over the keys it sees alone, with the map to fifty digits; 0 where it sees none."""
    output = torch.zeros(*query.shape[:-1], value.shape[-1], dtype=torch.float64)
    for example, head, i in torch.cartesian_prod(*map(torch.arange, query.shape[:-1])).tolist():
        row = bias.expand(*query.shape[:-1], KEYS)[example, head, i]
        seen = [j for j in range(KEYS) if row[j] > -INF]
        keys, values = key[example, head], value[example, head]
        scores = [factor(head, len(seen)) * float(query[example, head, i] @ keys[j]) + float(row[j]) for j in seen]
        for j, weight in zip(seen, reference.sharmix(scores, *orders[head]) if seen else (), strict=True):
            output[example, head, i] += float(weight) * values[j]
    return output


def bias_of(options):
    if options.get("is_causal"):
        return torch.zeros(QUERIES, KEYS).masked_fill(torch.ones(QUERIES, KEYS).triu(1).bool(), -INF)
    mask = options.get("attn_mask", torch.zeros(QUERIES, KEYS))
    return torch.zeros(mask.shape).masked_fill(~mask, -INF) if mask.dtype == torch.bool else mask


def per_head(*values):
    return torch.tensor(values, dtype=torch.float64).reshape(-1, 1, 1)


@pytest.mark.parametrize("scaled", [True, pytest.param(False, marks=pytest.mark.medium)])
@for_every(options=MASKS)
def test_each_head_with_orders_and_a_scale_of_its_own_equals_the_slow_loop(scaled, options):
    if scaled and "scale" in options:
        return
    q, r = per_head(1.25, 1.5, 1.5, 2.0), per_head(1.5, 1.5, 2.0, 2.0)
    beta, gamma = per_head(0.1, 0.5, 1.0, 2.0), per_head(0.0, 0.5, 1.0, -1.0)
    length_scale = sharmix.LogLengthScale(HEADS, delta=0.5).double()
    with torch.no_grad():
        length_scale.beta.copy_(beta)
        length_scale.gamma.copy_(gamma)

    def factor(head, keys):
        length_factor = 0.5 + beta[head].item() * math.log(1 + keys) ** gamma[head].item()
        return options.get("scale", WIDTH**-0.5) * (length_factor if scaled else 1.0)

    orders = list(zip(q.flatten().tolist(), r.flatten().tolist(), strict=True))
    act, given = sharmix.SharMiX(q=q, r=r), {"length_scale": length_scale} if scaled else {}
    expected = slow_attention(*inputs(), orders, bias_of(options), factor)
    torch.testing.assert_close(sharmix.attention(*inputs(), act, **options, **given), expected, rtol=0, atol=1e-13)


def test_scalable_softmax_and_what_is_not_learned():
    n = torch.tensor([[1.0], [10.0], [100.0]])
    scalable = sharmix.LogLengthScale(delta=0.0, beta=0.4, gamma=1.0, learned=["beta"])
    torch.testing.assert_close(scalable(n), 0.4 * (1 + n).log())
    assert [name for name, _ in scalable.named_parameters()] == ["beta"]
    assert repr(scalable) == "LogLengthScale(delta=0.0, gamma=1.0)"
    for learned, names in ((True, ["beta", "gamma"]), ("delta", ["delta"]), (False, []), ((), [])):
        assert [name for name, _ in sharmix.LogLengthScale(learned=learned).named_parameters()] == names
    assert sharmix.LogLengthScale(beta=1, learned=["beta"]).beta.is_floating_point()
    assert sharmix.LogLengthScale()(n).unique().item() == pytest.approx(1.55)  # γ starts at 0
    with pytest.raises(ValueError, match=r"learned='q' is not allowed; it must be a bool or names among .*'gamma'"):
        sharmix.LogLengthScale(learned="q")
    with pytest.raises(ValueError, match="num_heads=0 is not allowed; it must be at least 1"):
        sharmix.LogLengthScale(0)


def test_a_scale_of_0_weighs_all_keys_alike_and_a_mask_may_be_single():
    query, key, value = inputs()
    alike = sharmix.attention(query, key, value, "entmax", scale=0.0)
    torch.testing.assert_close(alike, value.mean(-2, keepdim=True).expand_as(alike))
    mask = numbers(QUERIES, KEYS).float()
    masked = (sharmix.attention(query, key, value, "softmax", one) for one in (mask, mask.double()))
    torch.testing.assert_close(*masked)


@for_every(
    "keys, options, numbers_of_keys",
    (
        (3, {"is_causal": True}, [1, 2, 3, 3, 3]),
        (0, {}, [1]),
        (
            KEYS,
            {"attn_mask": torch.ones(QUERIES, KEYS).tril().bool() & torch.tensor([[1]] * 4 + [[0]]).bool()},
            [1, 2, 3, 4, 1],
        ),
    ),
)
def test_a_length_scale_gets_the_number_of_keys_that_a_query_sees_and_at_least_1(keys, options, numbers_of_keys):
    query, key, value = inputs()
    seen = []
    scale = lambda n: seen.append(n.expand(QUERIES, 1)) or torch.ones_like(n)  # noqa: E731
    sharmix.attention(query, key[:, :, :keys], value[:, :, :keys], "entmax", **options, length_scale=scale)
    assert seen[0].flatten().tolist() == (numbers_of_keys * QUERIES)[:QUERIES]


def test_an_integer_mask_is_refused_under_autocast_too():
    half = [one.bfloat16() for one in inputs()]
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(TypeError, match=r"got torch\.int64"):
        sharmix.attention(*half, "entmax", torch.ones(QUERIES, KEYS, dtype=torch.long))


@for_every(rotated=(False, True))  # rotary angles in float32 leave queries and keys in float32
def test_autocast_is_that_of_torch_and_maps_in_float32(rotated):
    query, key, value = (tensor.requires_grad_() for tensor in inputs(torch.float32))
    seen = []

    def probe(scores):
        seen.append(scores.dtype)
        return scores.softmax(-1)

    with torch.autocast("cpu", torch.bfloat16):
        given = (query, key, value.bfloat16()) if rotated else (query, key, value)
        mask = torch.randn(QUERIES, KEYS, dtype=torch.bfloat16)
        found = sharmix.attention(*given, probe, mask)
        expected = scaled_dot_product_attention(*given, mask)
        assert seen.pop() == torch.float32
        assert found.dtype == expected.dtype == torch.bfloat16
        torch.testing.assert_close(found, expected, rtol=0, atol=3e-2)
        sharmix.attention(*given, "entmax", is_causal=True).sum().backward()


@for_every(
    "masked_rows, expected",
    (("zeros", 0.0), ("nan", math.nan)),
    name=("bool", "float", "padding"),
    act=("softmax", "entmax", "sharmix_fixed"),
)
def test_a_query_that_sees_no_key_gives_zeros_or_nan_and_no_gradient(name, masked_rows, expected, act):
    arguments = [tensor.requires_grad_() for tensor in inputs()]
    output = sharmix.attention(*arguments, act, **MASKS[name], masked_rows=masked_rows)
    blind = (bias_of(MASKS[name]) == -INF).all(-1).expand(output.shape[:-1])
    assert blind.any()
    torch.testing.assert_close(output[blind], torch.full_like(output[blind], expected), equal_nan=True)
    assert output[~blind].isfinite().all()
    gradients = torch.autograd.grad(output.sum(), arguments)
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert (gradients[0][blind] == 0).all()


@pytest.mark.medium
def test_it_compiles_in_one_graph():
    act, length_scale = sharmix.SharMiX(q=torch.full((HEADS, 1, 1), 1.25), learned=True), sharmix.LogLengthScale(HEADS)
    arguments = [tensor.requires_grad_() for tensor in inputs(torch.float32)]
    mask = MASKS["bool for each example"]["attn_mask"]

    def function(query, key, value, mask):
        masked = sharmix.attention(query, key, value, act, attn_mask=mask, length_scale=length_scale)
        return masked + sharmix.attention(query, key, value, act, is_causal=True)

    compiled = torch.compile(function, fullgraph=True, backend="eager")
    trained = [*arguments, *act.parameters(), *length_scale.parameters()]
    found, expected = (made(*arguments, mask) for made in (compiled, function))
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(*(torch.autograd.grad(made.square().sum(), trained) for made in (found, expected)))


@for_every(
    "message, wrong",
    {
        "activation has dim=1; it must be -1": {"activation": sharmix.Entmax(dim=1)},
        r"activation='alpha_relu' .* threshold to learn; pass .*build_act": {"activation": "alpha_relu"},
        "must be an Activation, a name or a function, got float": {"activation": 1.5},
        "got torch.float64, torch.float32 and torch.float64": {"key": KEY.float()},
        r"\[..., L, E\], \[..., S, E\] and \[..., S, Ev\], got \[\(2, 4, 5, 3\), \(2, 4, 7, 2\)": {"key": KEY[..., :2]},
        "attn_mask and is_causal=True": {"attn_mask": MASK, "is_causal": True},
        "attn_mask must be bool, float32 or of the query's torch.float64, got torch.int64": {"attn_mask": MASK.long()},
        r"attn_mask of shape \(2, 7\)": {"attn_mask": MASK.new_ones(2, 7)},  # of keys alone, [N, S]
        "must have leading dimensions that broadcast, .* enable_gqa=True": {"key": KEY[:, :2], "value": VALUE[:, :2]},
        "masked_rows='zero' is not allowed": {"masked_rows": "zero"},
        r"\[..., S, Ev\], got .*, \(2, 4, 6, 4\)": {"value": VALUE[:, :, 1:]},
        r"got .*, \(3,\), \(2, 4, 7, 4\)": {"key": KEY[0, 0, 0]},
        r"multiple of those of key and value: .*, \(2, 3, 7, 4\)": {"value": VALUE[:, :3], "enable_gqa": True},
        "activation must be an instance, Entmax": {"activation": sharmix.Entmax},
        r"attn_mask of shape \(7,\)": {"attn_mask": MASK.new_ones(7)},
        "must be of one floating-point dtype, got torch.int64": {
            "query": QUERY.long(),
            "key": KEY.long(),
            "value": VALUE.long(),
        },
    }.items(),
)
def test_refusals(message, wrong):
    arguments = {"query": QUERY, "key": KEY, "value": VALUE, "activation": "entmax"} | wrong
    with pytest.raises((TypeError, ValueError, RuntimeError), match=message):
        sharmix.attention(**arguments)
