"""The Transformer: an encoder and a decoder of pre-norm layers, with one embedding for all of it."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from experiments.data.special_tokens import PADDING
from experiments.errors import ConfigurationError
from experiments.networks.attention import Attention, KeysValues, attention_activation
from experiments.settings import ActivationSettings, AtLeastOne, Share, validated


class Memory(NamedTuple):
    """What the decoder attends to of encoded sentences.

    Attributes:
        layers: for each decoder layer its keys and values.
        real: which positions are no padding, bool [n, 1, 1, length].
    """

    layers: list[KeysValues]
    real: Tensor

    def at(self, rows: Tensor) -> "Memory":
        """The memory of the rows."""
        return Memory([layer.at(rows) for layer in self.layers], self.real.index_select(0, rows))


class _Layer(nn.Module):
    """What the layers of both stacks share: a feed-forward network, and how a sub-layer is added to the states."""

    def __init__(self, dimension: int, feedforward: int, dropout: float) -> None:
        super().__init__()
        self.feedforward = nn.Sequential(
            nn.Linear(dimension, feedforward), nn.ReLU(), nn.Dropout(dropout), nn.Linear(feedforward, dimension)
        )
        self.feedforward_norm = nn.LayerNorm(dimension)
        self.dropout = nn.Dropout(dropout)

    def _feed_forward(self, states: Tensor) -> Tensor:
        added: Tensor = self.dropout(self.feedforward(self.feedforward_norm(states)))
        return states + added


class EncoderLayer(_Layer):
    """Self-attention, then a feed-forward network, each on normalised states and added to them."""

    def __init__(self, dimension: int, feedforward: int, dropout: float, attention: Callable[[], Attention]) -> None:
        super().__init__(dimension, feedforward, dropout)
        self.self_attention, self.self_norm = attention(), nn.LayerNorm(dimension)

    def forward(self, states: Tensor, real: Tensor) -> Tensor:
        """States [n, length, dimension] where `real`, bool [n, 1, 1, length], says which positions are no padding."""
        normed = self.self_norm(states)
        states = states + self.dropout(self.self_attention(normed, self.self_attention.attended(normed), real))
        return self._feed_forward(states)


class DecoderLayer(_Layer):
    """Self-attention to earlier positions, attention to the memory, then a feed-forward network, likewise."""

    def __init__(self, dimension: int, feedforward: int, dropout: float, attention: Callable[[], Attention]) -> None:
        super().__init__(dimension, feedforward, dropout)
        self.self_attention, self.self_norm = attention(), nn.LayerNorm(dimension)
        self.cross_attention, self.cross_norm = attention(), nn.LayerNorm(dimension)

    def forward(
        self, states: Tensor, earlier: Tensor, past: KeysValues | None, memory: KeysValues, real: Tensor
    ) -> tuple[Tensor, KeysValues]:
        """New states, and what later positions attend to.

        Args:
            states: [n, length, dimension].
            earlier: which positions each may attend to, past ones included, bool [1, 1, length, past + length].
            past: keys and values of the positions before; None if there are none.
            memory: keys and values of the encoded sentences.
            real: which of their positions are no padding, bool [n, 1, 1, source length].
        """
        normed = self.self_norm(states)
        attended = self.self_attention.attended(normed)
        attended = attended if past is None else past.followed_by(attended)
        states = states + self.dropout(self.self_attention(normed, attended, earlier))
        states = states + self.dropout(self.cross_attention(self.cross_norm(states), memory, real))
        return self._feed_forward(states), attended


class Transformer(nn.Module):
    """Logits of the next token of a translation, for each of its positions.

    Args:
        vocabulary_size: of both languages together.
        dimension: of the states and embeddings.
        feedforward: hidden units of the feed-forward networks.
        heads: of each attention.
        encoder_layers, decoder_layers: how many.
        dropout: on embeddings, sub-layers and the hidden units of the feed-forward networks.
        attention_dropout: on attention weights.
        attention: the activation that gives the weights of each attention.

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
        self.encoder = nn.ModuleList(EncoderLayer(*sizes) for _ in range(encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(*sizes) for _ in range(decoder_layers))
        self.encoder_norm, self.decoder_norm = nn.LayerNorm(dimension), nn.LayerNorm(dimension)
        self.embedding = nn.Embedding(vocabulary_size, dimension, padding_idx=PADDING)
        self.output_bias = nn.Parameter(torch.zeros(vocabulary_size))
        self.dropout = nn.Dropout(dropout)
        self._initialise()

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Hidden states [n, length, dimension] of target tokens [n, length] given source tokens [n, source length]."""
        hidden, _ = self.decode(target, self.encode(source), None)
        return hidden

    def encode(self, source: Tensor) -> Memory:
        """What the decoder attends to of source tokens [n, length]."""
        real = (source != PADDING)[:, None, None]
        states = self._embedded(source, 0)
        for layer in self.encoder:
            states = layer(states, real)
        states = self.encoder_norm(states)
        return Memory([layer.cross_attention.attended(states) for layer in self.decoder], real)

    def decode(self, tokens: Tensor, memory: Memory, past: list[KeysValues] | None) -> tuple[Tensor, list[KeysValues]]:
        """Hidden states [n, length, dimension] of target tokens [n, length], and what later tokens attend to.

        Args:
            tokens: those that follow the past.
            memory: of the encoded sentences.
            past: what this returned for the tokens before; None if there are none.
        """
        before, length = 0 if past is None else past[0].keys.shape[2], tokens.shape[1]
        places = torch.arange(before + length, device=tokens.device)
        earlier = (places <= places[before:, None])[None, None]
        states, attended = self._embedded(tokens, before), []
        for number, layer in enumerate(self.decoder):
            own = None if past is None else past[number]
            states, own = layer(states, earlier, own, memory.layers[number], memory.real)
            attended.append(own)
        return self.decoder_norm(states), attended

    def logits(self, hidden: Tensor) -> Tensor:
        """[..., vocabulary] of hidden states [..., dimension]."""
        return nn.functional.linear(hidden, self.embedding.weight, self.output_bias)

    def _embedded(self, tokens: Tensor, before: int) -> Tensor:
        scaled = self.embedding(tokens) * math.sqrt(self.embedding.embedding_dim)
        places = torch.arange(before, before + tokens.shape[1], device=tokens.device)
        embedded: Tensor = self.dropout(scaled + positions(places, self.embedding.embedding_dim))
        return embedded

    def _initialise(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
        # So that embeddings, scaled, are of unit variance, and so are the first logits.
        nn.init.normal_(self.embedding.weight, std=self.embedding.embedding_dim**-0.5)
        with torch.no_grad():
            self.embedding.weight[PADDING] = 0


def positions(places: Tensor, dimension: int) -> Tensor:
    """The sinusoids of places [length]: sines, then cosines, of half the dimensions each, [length, dimension].

    Source: Vaswani et al., 2017, section 3.5, with the dimensions in another order.
    """
    half = torch.arange(dimension // 2, device=places.device)
    angles = places[:, None] * torch.exp(half * (-math.log(10000.0) / (dimension // 2)))
    return torch.cat([angles.sin(), angles.cos()], -1)
