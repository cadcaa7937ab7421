"""The Transformer: an encoder and a decoder of pre-norm layers, with one shared embedding."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from experiments.data.special_tokens import PADDING
from experiments.errors import ConfigurationError
from experiments.networks.attention import Attention, KeysValues, attention_activation
from experiments.settings import ActivationSettings, AtLeastOne, Share, validated

# Keys and values of each layer, to which the decoder attends; and which positions are real, bool [n, 1, 1, length].
Memory = tuple[list[KeysValues], Tensor]


class Layer(nn.Module):
    """Self-attention, attention to the memory (only in a decoder), and a feed-forward network.

    Each part gets normalised states, and its output is added to the states.
    """

    def __init__(
        self, dimension: int, feedforward: int, dropout: float, attention: Callable[[], Attention], decodes: bool
    ) -> None:
        super().__init__()
        self.feedforward = nn.Sequential(
            nn.Linear(dimension, feedforward), nn.ReLU(), nn.Dropout(dropout), nn.Linear(feedforward, dimension)
        )
        self.feedforward_norm = nn.LayerNorm(dimension)
        self.dropout = nn.Dropout(dropout)
        self.self_attention, self.self_norm = attention(), nn.LayerNorm(dimension)
        if decodes:
            self.cross_attention, self.cross_norm = attention(), nn.LayerNorm(dimension)

    def forward(
        self,
        states: Tensor,
        allowed: Tensor,
        past: KeysValues | None = None,
        memory: KeysValues | None = None,
        real: Tensor | None = None,
    ) -> tuple[Tensor, KeysValues]:
        """New states [n, length, dimension], and the keys and values for later positions.

        Args:
            allowed: which positions each may attend to, past ones included, bool [n or 1, 1, length or 1, positions].
            past: keys and values of the positions before; None if there are none.
            memory: keys and values of the encoded sentences; None in an encoder.
            real: which positions of these sentences are not padding, bool [n, 1, 1, source length].
        """
        normed = self.self_norm(states)
        own = self.self_attention.attended(normed)
        if past is not None:
            own = tuple(torch.cat([before, now], 2) for before, now in zip(past, own, strict=True))
        states = states + self.dropout(self.self_attention(normed, own, allowed))
        if memory is not None:
            states = states + self.dropout(self.cross_attention(self.cross_norm(states), memory, real))
        return states + self.dropout(self.feedforward(self.feedforward_norm(states))), own


class Transformer(nn.Module):
    """Hidden states for each position of a translation, and the logits of its next token.

    Arguments: `conf/model/transformer.yaml`; `attention` is the activation that computes the weights of each attention.

    Raises:
        ConfigurationError: the heads cannot share the dimension, or there is no such activation.

    Source: Vaswani et al., Attention Is All You Need, 2017; pre-norm as in Xiong et al., 2020; tied as in Press and
    Wolf, 2017.
    """

    @validated
    def __init__(
        self,
        *,
        vocabulary_size: AtLeastOne,
        dimension: AtLeastOne,
        feedforward: AtLeastOne,
        heads: AtLeastOne,
        encoder_layers: AtLeastOne,
        decoder_layers: AtLeastOne,
        dropout: Share = 0.0,
        attention_dropout: Share = 0.0,
        attention: ActivationSettings,
    ) -> None:
        super().__init__()
        if dimension % (2 * heads):
            raise ConfigurationError(
                f"model.dimension={dimension} is not allowed; it must be divisible by 2 * model.heads = {2 * heads}"
            )

        def new_attention() -> Attention:
            return Attention(dimension, heads, attention_dropout, attention_activation(attention, heads))

        sizes = (dimension, feedforward, dropout, new_attention)
        self.encoder = nn.ModuleList(Layer(*sizes, decodes=False) for _ in range(encoder_layers))
        self.decoder = nn.ModuleList(Layer(*sizes, decodes=True) for _ in range(decoder_layers))
        self.encoder_norm, self.decoder_norm = nn.LayerNorm(dimension), nn.LayerNorm(dimension)
        self.embedding = nn.Embedding(vocabulary_size, dimension, padding_idx=PADDING)
        self.output_bias = nn.Parameter(torch.zeros(vocabulary_size))
        self.dropout = nn.Dropout(dropout)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
        # With this scale the scaled embeddings and the first logits have unit variance.
        nn.init.normal_(self.embedding.weight, std=dimension**-0.5)
        with torch.no_grad():
            self.embedding.weight[PADDING] = 0

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Hidden states [n, length, dimension] of target tokens [n, length] given source tokens [n, source length]."""
        return self.decode(target, self.encode(source), None)[0]

    def encode(self, source: Tensor) -> Memory:
        """The memory of source tokens [n, length], to which the decoder attends."""
        real = (source != PADDING)[:, None, None]
        states = self._embedded(source, 0)
        for layer in self.encoder:
            states, _ = layer(states, real)
        states = self.encoder_norm(states)
        return [layer.cross_attention.attended(states) for layer in self.decoder], real

    def decode(self, tokens: Tensor, memory: Memory, past: list[KeysValues] | None) -> tuple[Tensor, list[KeysValues]]:
        """Hidden states [n, length, dimension] of target tokens [n, length], and the past for later tokens.

        `past` is the past that this method returned for the tokens before; None if there are none.
        """
        (layers, real), length = memory, tokens.shape[1]
        before = 0 if past is None else past[0][0].shape[2]
        earlier = tokens.new_ones(1, 1, length, before + length, dtype=torch.bool).tril(before)
        states, attended = self._embedded(tokens, before), []
        for layer, own, encoded in zip(self.decoder, past or [None] * len(layers), layers, strict=True):
            states, own = layer(states, earlier, own, encoded, real)
            attended.append(own)
        return self.decoder_norm(states), attended

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits [..., vocabulary] of hidden states [..., dimension]."""
        return nn.functional.linear(hidden, self.embedding.weight, self.output_bias)

    def _embedded(self, tokens: Tensor, before: int) -> Tensor:
        scaled = self.embedding(tokens) * math.sqrt(self.embedding.embedding_dim)
        places = torch.arange(before, before + tokens.shape[1], device=tokens.device)
        return self.dropout(scaled + positions(places, self.embedding.embedding_dim))


def positions(places: Tensor, dimension: int) -> Tensor:
    """The sinusoids of positions [length]: first sines, then cosines, half of the dimensions each, [length, dimension].

    Source: Vaswani et al., 2017, section 3.5, with the dimensions in another order.
    """
    half = torch.arange(dimension // 2, device=places.device)
    angles = places[:, None] * torch.exp(half * (-math.log(10000.0) / (dimension // 2)))
    return torch.cat([angles.sin(), angles.cos()], -1)
