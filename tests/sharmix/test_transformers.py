"""Sparse attention and sparse candidates inside tiny models of transformers, made from configurations."""

import importlib
import math
import re
from pathlib import Path

import pytest
import torch

import sharmix
from sharmix import _attention
from tests.sharmix.cases import every_case, for_every

transformers = pytest.importorskip("transformers")
ours = importlib.import_module("sharmix.integrations.transformers")

pytestmark = pytest.mark.medium  # imports transformers: seconds

SIZES = {"vocab_size": 24, "bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0}
LENGTH = 6
TOKENS = torch.randint(2, 24, (2, LENGTH), generator=torch.Generator().manual_seed(0))
PADDED_LEFT = torch.tensor([[0, 0, 1, 1, 1, 1], [1] * LENGTH])
PADDED_RIGHT = PADDED_LEFT.flip(1)


def llama(**options):
    """Four heads of the query share two of keys and values."""
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "max_position_embeddings": 64}
    config = transformers.LlamaConfig(**SIZES, **sizes, num_attention_heads=4, num_key_value_heads=2, **options)
    return transformers.LlamaForCausalLM(config)


def gpt2(**options):
    config = transformers.GPT2Config(**SIZES, n_embd=16, n_layer=2, n_head=4, n_positions=64, **options)
    return transformers.GPT2LMHeadModel(config)


def bert(**options):
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32}
    config = transformers.BertConfig(**SIZES, **sizes, max_position_embeddings=64, **options)
    return transformers.BertForMaskedLM(config)


def t5(**options):
    sizes = {"d_model": 16, "d_kv": 4, "d_ff": 32, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0}
    return transformers.T5ForConditionalGeneration(transformers.T5Config(**SIZES, **sizes, **options))


def model_of(make, **options):
    """A random model whose attention is far from uniform, in float64, without dropout."""
    torch.manual_seed(0)
    model = make(**options).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(8)
    return model


@pytest.fixture(scope="module", autouse=True)
def names():
    ours.register_attention("sharmix_softmax", "softmax")
    ours.register_attention("sharmix_entmax", "entmax")
    ours.register_attention("sharmix_sparsemax", sharmix.Sparsemax())


@pytest.fixture(params=["whole", "in blocks"], autouse=True)
def each_way(request, monkeypatch):
    """Both ways to compute attention; weights that are asked for are there in both."""
    if request.param == "in blocks":
        monkeypatch.setattr(_attention, "_WHOLE_BYTES", 0)


@pytest.mark.parametrize(("dtype", "error"), [(torch.float64, 1e-12), (torch.float32, 1e-6)])
@for_every(make=(llama, gpt2, bert, t5), padding=(None, PADDED_LEFT, PADDED_RIGHT))
def test_under_softmax_models_compute_what_they_did(dtype, error, make, padding):
    model = model_of(make).to(dtype)
    inputs = {"input_ids": TOKENS} | ({"labels": TOKENS} if make is t5 else {})
    seen = slice(None) if padding is None or make is t5 else padding.bool()
    made = {}
    for name in ("sdpa", "eager", "sharmix_softmax"):
        model.set_attn_implementation(name)
        made[name] = model(**inputs, attention_mask=padding).logits[seen]
    for name in ("sdpa", "eager"):
        if name == "sdpa" or dtype == torch.float32:  # eager attention computes softmax in float32
            atol = error * made[name].abs().max().item()
            torch.testing.assert_close(made["sharmix_softmax"], made[name], rtol=0, atol=atol)


@for_every(make=(llama, gpt2, bert))
def test_attention_weights_are_returned_and_sparse(make):
    model = model_of(make, attn_implementation="sharmix_sparsemax")
    weights = model(TOKENS, attention_mask=PADDED_LEFT, output_attentions=True).attentions
    assert [layer.shape for layer in weights] == [(2, 4, LENGTH, LENGTH)] * 2
    assert (weights[0][0, :, :, :2] == 0).all()
    totals = weights[0][PADDED_LEFT.bool()[:, None].expand(-1, 4, -1)].sum(-1)
    torch.testing.assert_close(totals, torch.ones_like(totals))
    assert 0 < (weights[0][1, :, -1] > 0).double().mean() < 1


def test_caches_and_padding_change_nothing():
    length_scale = sharmix.LogLengthScale(4, gamma=1.0).double()
    ours.register_attention("sharmix_scaled", "entmax", length_scale)
    model = model_of(llama, attn_implementation="sharmix_scaled")
    with torch.no_grad():
        expected = model(TOKENS[1:]).logits[0]
        by_token, cache = [], transformers.DynamicCache(config=model.config)
        static = transformers.StaticCache(config=model.config, max_cache_len=LENGTH + 3)
        for token in TOKENS[1]:
            by_token.append(model(token.reshape(1, 1), past_key_values=cache).logits[0, -1])
        in_static = model(TOKENS[1:, :4], past_key_values=static).logits[0]
        in_static = torch.cat([in_static, model(TOKENS[1:, 4:], past_key_values=static).logits[0]])
        short = torch.cat([torch.zeros(1, 2, dtype=torch.long), TOKENS[1:, :4]], dim=1)
        padded = model(short, attention_mask=PADDED_LEFT[:1]).logits[0, 2:]
    torch.testing.assert_close(torch.stack(by_token), expected)
    torch.testing.assert_close(in_static, expected)
    torch.testing.assert_close(padded, expected[:4], rtol=0, atol=1e-5)  # rotary angles are float32
    generated = [
        model.generate(TOKENS, attention_mask=PADDED_LEFT, max_new_tokens=5, do_sample=False, use_cache=use_cache)
        for use_cache in (True, False)
    ]
    assert torch.equal(*generated)
    assert generated[0].shape == (2, LENGTH + 5)
    model.set_attn_implementation("sharmix_entmax")
    assert not torch.allclose(model(TOKENS[1:]).logits[0, 1:], expected[1:])  # the scale counts


@for_every(given=(None, True, False), declared=(None, True, False), queries=(1, LENGTH), masked=(False, True))
def test_arguments_mean_what_they_do_to_torch(given, declared, queries, masked):
    layer = torch.nn.Module()  # a layer may not declare that it is causal
    if declared is not None:
        layer.is_causal = declared
    generator = torch.Generator().manual_seed(0)
    key = torch.randn(2, 4, LENGTH, 4, dtype=torch.float64, generator=generator)
    query, value = key[:, :, -queries:] + 1, key.flip(-1)
    mask = PADDED_LEFT.bool()[:, None, None] if masked else None
    found, expected = (
        transformers.AttentionInterface()[name](layer, query, key, value, mask, scaling=0.7, is_causal=given)[0]
        for name in ("sharmix_softmax", "sdpa")
    )
    torch.testing.assert_close(found, expected)


def test_dropout_of_weights_reaches_attention():
    model = model_of(gpt2, attn_implementation="sharmix_softmax", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.5)
    kept = model(TOKENS).logits
    model.train()
    assert not torch.allclose(model(TOKENS).logits, kept)


def test_a_saved_model_is_loaded_under_the_name(tmp_path):
    model = model_of(gpt2, attn_implementation="sharmix_entmax")
    model.save_pretrained(tmp_path)
    load = transformers.GPT2LMHeadModel.from_pretrained
    loaded = load(tmp_path, attn_implementation="sharmix_entmax", dtype=torch.float64)
    assert torch.equal(loaded(TOKENS).logits, model(TOKENS).logits)
    assert load(tmp_path).config._attn_implementation == "sdpa"  # as docs/attention.md warns


@for_every(activation=("entmax", sharmix.SharMiX(1.5, 1.75), sharmix.Sparsemax()), own=(False, True), beams=(1, 2))
def test_candidates_are_the_support(activation, own, beams):
    model = model_of(gpt2, attn_implementation="sharmix_entmax").float()
    processor = transformers.LogitsProcessorList
    made = model.generate(
        TOKENS.repeat(50, 1), max_new_tokens=4, do_sample=True, num_beams=beams, top_k=0,
        logits_processor=processor([ours.SupportLogitsProcessor(activation, own)]),
        output_logits=True, return_dict_in_generate=True,
    )  # fmt: skip
    assert_in_support(model, made.sequences, activation)


def assert_in_support(model, sequences, activation):
    """Each token that was generated has a probability above 0, after those before it, and some token has none."""
    act = sharmix.build_activation(activation) if isinstance(activation, str) else activation
    with torch.no_grad():
        p = act(model(sequences).logits[:, LENGTH - 1 : -1])
    chosen = p.gather(-1, sequences[:, LENGTH:, None])
    assert (chosen > -1e-6).all()
    assert (chosen > 0).double().mean() > 0.99  # a step at a time rounds otherwise, at the edge of the support
    assert (p == 0).any()


def test_refusals():
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "head_dim": 4}
    config = transformers.Gemma2Config(**SIZES, **sizes, num_attention_heads=4, num_key_value_heads=2)
    gemma = transformers.Gemma2ForCausalLM(config)
    gemma.set_attn_implementation("sharmix_entmax")
    sizes |= {"num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 2}
    config = transformers.GptOssConfig(**SIZES, **sizes)
    gpt_oss = transformers.GptOssForCausalLM(config)
    gpt_oss.set_attn_implementation("sharmix_entmax")
    refused = {
        "Gemma2Attention computes attention with softcap": lambda: gemma(TOKENS),
        "GptOssAttention computes attention with s_aux": lambda: gpt_oss(TOKENS),
        "there is no activation 'entmx'": lambda: ours.register_attention("sharmix_wrong", "entmx"),
        "activation='entmax_learned' has parameters": lambda: ours.SupportLogitsProcessor("entmax_learned"),
        "it can leave no candidate": lambda: ours.SupportLogitsProcessor(sharmix.AlphaReLU(tau=0.3)),
        "not a valid|not supported": lambda: gpt2(attn_implementation="sharmix_wrong"),
    }
    with every_case() as case:
        for message, call in refused.items():
            with case(message=message), pytest.raises((ValueError, KeyError), match=message):
                call()


def test_the_code_of_the_documentation(tmp_path, monkeypatch):
    torch.manual_seed(0)
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "attention.md").read_text(encoding="utf-8")
    names = {"math": math}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(block, names)
    assert (names["model"].model.layers[0].self_attn.sharmix_activation.alpha == 1.5).all()
    plain = transformers.LlamaForCausalLM(names["model"].config)
    names["model"].save_pretrained("orders")
    assert not hasattr(plain.from_pretrained("orders").model.layers[0].self_attn, "sharmix_activation")
    assert names["generated"].shape == (2, 17)
    rows = re.findall(r"`(LogLengthScale\(.*?\))` \|", page)
    scales = [eval(f"sharmix.{row}", names | {"num_heads": 8, "b": 0.4, "N": 64}) for row in rows]
    factors = [scale(torch.tensor([[64.0]])) for scale in scales]
    assert [factor.numel() for factor in factors] == [8, 8, 1]
    torch.testing.assert_close(factors[2], torch.ones(1, 1))
