"""The Transformer is torch's own, decodes step by step what it decodes at once, and attends by any activation."""

import pytest
import torch
from torch import nn

import sharmix
from experiments.data.special_tokens import BEGIN, END, FIRST, PADDING
from experiments.networks.attention import attention_activation
from experiments.networks.transformer import Transformer
from experiments.settings import ActivationSettings

DIMENSION, HEADS, FEEDFORWARD, WORDS = 16, 4, 24, 19
ATTENTIONS = {
    "softmax": ActivationSettings(name="softmax"),
    "entmax": ActivationSettings(name="entmax_learned", alpha=1.5),
    "sharmix": ActivationSettings(name="sharmix_learned", q=1.25, r=1.5),
}


def transformer(attention="softmax", dropout=0.0):
    torch.manual_seed(0)
    model = Transformer(
        vocabulary_size=FIRST + WORDS,
        dimension=DIMENSION,
        feedforward=FEEDFORWARD,
        heads=HEADS,
        encoder_layers=2,
        decoder_layers=2,
        dropout=dropout,
        attention_dropout=dropout,
        attention=ATTENTIONS[attention],
    )
    for norm in (module for module in model.modules() if isinstance(module, nn.LayerNorm)):
        nn.init.normal_(norm.weight)  # so that a norm in the wrong place shows
    return model.double().eval()


def sentences():
    """Two sources and targets, the second of each shorter than the first."""
    generator = torch.Generator().manual_seed(1)
    source, target = (torch.randint(FIRST, FIRST + WORDS, (2, n), generator=generator) for n in (7, 6))
    source[0, -1], source[1, 4], source[1, 5:] = END, END, PADDING
    target[:, 0], target[1, 4:] = BEGIN, PADDING
    return source, target


def theirs(own, layer):
    """Torch's layer with our weights."""

    def attention(mine, other):
        parts = (mine.query, mine.key, mine.value)
        other.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
        other.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
        other.out_proj.load_state_dict(mine.output.state_dict())

    with torch.no_grad():
        attention(own.self_attention, layer.self_attn)
        norms = [own.self_norm]
        if hasattr(own, "cross_attention"):
            attention(own.cross_attention, layer.multihead_attn)
            norms.append(own.cross_norm)
        for number, norm in enumerate([*norms, own.feedforward_norm], 1):
            getattr(layer, f"norm{number}").load_state_dict(norm.state_dict())
        layer.linear1.load_state_dict(own.feedforward[0].state_dict())
        layer.linear2.load_state_dict(own.feedforward[3].state_dict())
    return layer.eval()


def test_the_layers_compute_what_torchs_own_do():
    model = transformer()
    source, target = sentences()
    sizes = {"dim_feedforward": FEEDFORWARD, "dropout": 0.0, "batch_first": True, "norm_first": True}
    hidden = model._embedded(source, 0)
    for own in model.encoder:
        layer = theirs(own, nn.TransformerEncoderLayer(DIMENSION, HEADS, **sizes).double())
        hidden = layer(hidden, src_key_padding_mask=source == PADDING)
    encoded = model.encoder_norm(hidden)
    hidden = model._embedded(target, 0)
    later = nn.Transformer.generate_square_subsequent_mask(target.shape[1], dtype=torch.double)
    for own in model.decoder:
        layer = theirs(own, nn.TransformerDecoderLayer(DIMENSION, HEADS, **sizes).double())
        hidden = layer(hidden, encoded, tgt_mask=later, memory_key_padding_mask=source == PADDING)
    torch.testing.assert_close(model(source, target), model.decoder_norm(hidden))


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_one_token_at_a_time_gives_the_same_states(attention):
    model = transformer(attention)
    source, target = sentences()
    memory, past, steps = model.encode(source), None, []
    for token in target.split(1, dim=1):
        hidden, past = model.decode(token, memory, past)
        steps.append(hidden)
    torch.testing.assert_close(torch.cat(steps, 1), model(source, target))


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_padding_and_later_tokens_change_nothing(attention):
    model = transformer(attention)
    source, target = sentences()
    together = model(source, target)
    torch.testing.assert_close(model(source[1:, :5], target[1:, :4]), together[1:, :4])
    changed = target.clone()
    changed[:, 3:] = END
    torch.testing.assert_close(model(source, changed)[:, :3], together[:, :3])
    assert not torch.allclose(model(source, changed)[0, 3], together[0, 3])


def test_the_order_of_words_matters():
    model = transformer()
    source, target = sentences()
    swapped = source.clone()
    swapped[0, [0, 1]] = source[0, [1, 0]]
    assert not torch.allclose(model(swapped, target)[0], model(source, target)[0])


def test_a_head_attends_as_its_own_orders_say():
    activation = attention_activation(ATTENTIONS["sharmix"], HEADS)
    with torch.no_grad():
        activation.q.copy_(torch.linspace(1.1, 1.9, HEADS)[:, None, None])
    scores = torch.randn(2, HEADS, 3, 5, generator=torch.Generator().manual_seed(0))
    for head in range(HEADS):
        expected = sharmix.sharmix(scores[:, head], activation.q[head].item(), 1.5)
        torch.testing.assert_close(activation(scores)[:, head], expected)


def test_one_embedding_serves_both_languages_and_the_output():
    model = transformer()
    assert sum(parameter.shape[0] == FIRST + WORDS for parameter in model.parameters()) == 2  # and the output's bias
    hidden = torch.randn(3, DIMENSION, dtype=torch.double)
    torch.testing.assert_close(model.logits(hidden), hidden @ model.embedding.weight.T + model.output_bias)


def test_training_drops_states_and_attention_weights():
    model = transformer(dropout=0.5).train()
    source, target = sentences()
    assert not torch.equal(model(source, target), model(source, target))
