"""SparseAttention beside torch's nn.MultiheadAttention, alone and inside torch's encoder and decoder."""

import copy
import io

import pytest
import torch
from torch import nn

import sharmix
from tests.sharmix.cases import every_case, for_every

WIDTH, HEADS, BATCH, QUERIES, KEYS = 12, 4, 2, 5, 7


def states(*lengths, **options):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(BATCH, length, WIDTH, generator=generator, **options) for length in lengths]


def pair(**options):
    """torch's module, and ours with its weights."""
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(WIDTH, HEADS, **options)
    ours = sharmix.SparseAttention(WIDTH, HEADS, **options, activation="softmax")
    for bias in (theirs.in_proj_bias, theirs.out_proj.bias):
        if bias is not None:
            nn.init.normal_(bias)
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def masks():
    hidden = torch.randn(QUERIES, KEYS, generator=torch.Generator().manual_seed(1)) > 0.5
    hidden[:, 0] = False
    each = torch.randn(BATCH * HEADS, QUERIES, KEYS, generator=torch.Generator().manual_seed(2))
    padding = torch.arange(KEYS) >= torch.tensor([[4], [7]])
    minus = torch.zeros(BATCH, KEYS).masked_fill(padding, float("-inf"))
    return {
        "none": {},
        "bool": {"attn_mask": hidden},
        "float": {"attn_mask": each[0]},
        "for each head": {"attn_mask": (each > 1) & hidden},
        "float for each head": {"attn_mask": each},
        "padding": {"key_padding_mask": padding},
        "both": {"key_padding_mask": padding, "attn_mask": hidden},
        "both float": {"key_padding_mask": minus, "attn_mask": each},
        "causal": {"attn_mask": torch.ones(QUERIES, KEYS).triu(1).bool(), "is_causal": True},
        "head weights": {"attn_mask": hidden, "average_attn_weights": False},
        "no weights": {"attn_mask": hidden, "need_weights": False},
    }


@for_every(
    options=[{}, {"batch_first": True}, {"bias": False}, {"kdim": 8, "vdim": 10, "batch_first": True}], mask=masks()
)
def test_under_softmax_it_is_the_module_of_torch(options, mask):
    theirs, ours = pair(**options)
    inputs = states(QUERIES, KEYS, KEYS, requires_grad=True)
    query, key, value = inputs[0], inputs[1][..., : theirs.kdim], inputs[2][..., : theirs.vdim]
    if not options.get("batch_first"):
        query, key, value = (tensor.transpose(0, 1) for tensor in (query, key, value))
    made = [module(query, key, value, **mask) for module in (ours, theirs)]
    torch.testing.assert_close(*made, rtol=0, atol=1e-6)
    both = [
        torch.autograd.grad(output.square().sum(), [*inputs, *module.parameters()])
        for (output, _), module in zip(made, (ours, theirs), strict=True)
    ]
    torch.testing.assert_close(*both, rtol=1e-5, atol=1e-5)


def test_one_example_without_a_batch_and_examples_without_queries_or_keys():
    query, key = states(QUERIES, KEYS)
    padding = torch.arange(KEYS) > 3
    for inputs, given in (
        ((query[0], key[0], key[0]), {"key_padding_mask": padding}),
        ((query[0], key[0], key[0]), {"key_padding_mask": padding, "average_attn_weights": False}),
        ((query[:, :0], key, key), {"attn_mask": torch.zeros(BATCH * HEADS, 0, KEYS)}),
        ((query, key[:, :0], key[:, :0]), {"attn_mask": torch.zeros(BATCH * HEADS, QUERIES, 0)}),
        ((query, key[:, :0], key[:, :0]), {"key_padding_mask": torch.zeros(BATCH, 0).bool()}),
    ):
        ours, theirs = (module(*inputs, **given) for module in pair(batch_first=True))
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)


def test_dropout_drops_weights_in_training_alone():
    query, key = states(QUERIES, KEYS)
    ours = pair(batch_first=True, dropout=0.5)[1]
    _, weights = ours(query, key, key, average_attn_weights=False)
    assert (weights == 0).float().mean() == pytest.approx(0.5, abs=0.1)
    _, weights = ours.eval()(query, key, key)
    assert (weights > 0).all()


@for_every(activation=("softmax", "entmax"), inference=(torch.no_grad, torch.inference_mode, torch.enable_grad))
def test_the_fast_path_of_an_encoder_layer_leaves_it_alone(activation, inference):
    x, options = 3 * states(KEYS)[0], {"dropout": 0.1, "batch_first": True}
    torch.manual_seed(0)
    plain = nn.TransformerEncoderLayer(WIDTH, HEADS, 16, **options).eval()
    layer = copy.deepcopy(plain)
    layer.self_attn = sharmix.SparseAttention(WIDTH, HEADS, **options, activation=activation).eval()
    layer.self_attn.load_state_dict(plain.self_attn.state_dict())
    with inference():
        attended, weights = layer.self_attn(x, x, x)
        by_hand = layer.norm1(x + attended)
        by_hand = layer.norm2(by_hand + layer.linear2(layer.linear1(by_hand).relu()))
        torch.testing.assert_close(layer(x), by_hand, rtol=0, atol=1e-6)
        close = torch.allclose(layer(x), plain(x), rtol=0, atol=1e-5)
        assert close == (activation == "softmax")
        assert (weights == 0).any() == (activation == "entmax")


def test_what_it_learns_is_trained_and_saved():
    act = sharmix.SharMiX(q=torch.full((HEADS, 1, 1), 1.25), learned=True)
    options = {"batch_first": True, "activation": act, "length_scale": sharmix.LogLengthScale(HEADS)}
    module = sharmix.SparseAttention(WIDTH, HEADS, **options)
    learned = {"activation.q", "activation.r", "length_scale.beta", "length_scale.gamma"}
    query, key = states(QUERIES, KEYS)
    module(3 * query, key, key)[0].square().sum().backward()
    assert all(module.get_parameter(name).grad.abs().max() > 0 for name in learned)
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    assert set(loaded) - set(nn.MultiheadAttention(WIDTH, HEADS).state_dict()) == learned
    assert torch.equal(copy.deepcopy(module)(query, key, key)[0], module(query, key, key)[0])
    named = sharmix.SparseAttention(WIDTH, HEADS, activation="entmax_learned")
    assert "activation.alpha" in dict(named.named_parameters())
    elsewhere = sharmix.SparseAttention(WIDTH, HEADS, activation="entmax_learned", device="meta")
    assert elsewhere.activation.alpha.is_meta


def test_refusals():
    query, key = states(QUERIES, KEYS)
    ours = pair(batch_first=True)[1]
    with every_case() as case:
        for message, arguments, masks in (
            (r"\[N, L, E\], .* got \[\(2, 5, 12\), \(1, 7, 12\)", (query, key[:1], key[:1]), {}),
            (r"got \[\(1, 5, 12\), \(1, 2, 7", (query[0], key, key), {}),
            (r"of shape \(1, 7\)", (query, key, key), {"key_padding_mask": torch.zeros(1, 7).bool()}),
            (r"of shape \(7,\)", (query, key, key), {"key_padding_mask": torch.zeros(7).bool()}),
            (r"must be one of \(\(5, 7\), \(8, 5, 7\)\)", (query, key, key), {"attn_mask": torch.zeros(7, 5)}),
            (r"\[N, S, Ev\], got .* \(2, 6, 12\)", (query, key, key[:, 1:]), {}),
            ("key_padding_mask must be bool", (query, key, key), {"key_padding_mask": torch.zeros(2, 7).long()}),
            ("attn_mask must be bool", (query, key, key), {"attn_mask": torch.zeros(5, 7).int()}),
        ):
            with case(message=message), pytest.raises((ValueError, TypeError), match=message):
                ours(*arguments, **masks)
        for message, arguments in (
            ("add_bias_kv=True and add_zero_attn=False are not allowed", {"add_bias_kv": True}),
            ("add_zero_attn=True are not allowed", {"add_zero_attn": True}),
            ("must be divisible by num_heads", {"num_heads": 5}),
            ("there is no activation 'entmx'", {"activation": "entmx"}),
            ("must be -1", {"activation": sharmix.Entmax(dim=1)}),
        ):
            with case(message=message), pytest.raises((ValueError, AssertionError), match=message):
                sharmix.SparseAttention(**{"embed_dim": WIDTH, "num_heads": HEADS} | arguments)
        with case(call=True), pytest.raises(RuntimeError, match="is_causal=True is a hint"):
            ours(key, key, key, is_causal=True)
        nested = torch.nested.nested_tensor([torch.randn(3, WIDTH)], layout=torch.jagged)
        with case(nested=True), pytest.raises(RuntimeError, match="takes no nested tensor"):
            ours(nested, nested, nested)
