"""A small decoder of tokens. Any activation can compute the weights of its attention."""

import math

import torch
from torch import Tensor, nn

import sharmix


class SelfAttention(nn.Module):
    """Causal attention. The first half of the heads knows distances, the second half knows the content alone.

    Head h of the first half subtracts distance/h from its scores (ALiBi); the others have no positions (NoPE). Only the
    others have scores that grow with the number of keys, as in Scalable-Softmax, β log(1 + n) with a learned β for each
    head: heads with distances see about as many keys at any length.

    Source: NAPE of Vasylenko et al., Long-Context Generalization with Sparse Attention, 2025, section 5.
    """

    def __init__(self, dimension: int, heads: int, activation: sharmix.Activation, same_scale_at: int | None) -> None:
        super().__init__()
        self.activation, self.local = activation, heads // 2
        self.scale = None
        if same_scale_at is not None:
            beta = 1 / math.log1p(same_scale_at)
            self.scale = sharmix.LogLengthScale(heads - self.local, delta=0.0, beta=beta, gamma=1.0, learned=("beta",))
        self.inputs, self.output = nn.Linear(dimension, 3 * dimension), nn.Linear(dimension, dimension)
        slopes = [1 / head for head in range(1, self.local + 1)] + [0.0] * (heads - self.local)
        self.register_buffer("slopes", torch.tensor(slopes)[:, None, None], persistent=False)

    def forward(self, states: Tensor) -> Tensor:
        """The attention's output for states [n, length, dimension]: each attends to itself and to earlier states."""
        query, key, value = (
            part.unflatten(-1, (len(self.slopes), -1)).transpose(1, 2) for part in self.inputs(states).chunk(3, -1)
        )
        places = torch.arange(states.shape[1])
        distances = places[:, None] - places
        bias = (-self.slopes * distances).masked_fill(distances < 0, -torch.inf)
        scale = None if self.scale is None else self._scaled_content
        gathered = sharmix.attention(query, key, value, self.activation, attn_mask=bias, length_scale=scale)
        return self.output(gathered.transpose(1, 2).flatten(2))

    def _scaled_content(self, keys: Tensor) -> Tensor:
        return torch.cat([torch.ones_like(keys[: self.local]), self.scale(keys[self.local :])])


class Layer(nn.Module):
    """Attention, then a feed-forward network. Each reads normalised states, and adds its output to the states."""

    def __init__(self, dimension: int, feedforward: int, attention: SelfAttention) -> None:
        super().__init__()
        self.attention, self.attention_norm = attention, nn.LayerNorm(dimension)
        self.feedforward_norm = nn.LayerNorm(dimension)
        self.feedforward = nn.Sequential(
            nn.Linear(dimension, feedforward), nn.GELU(), nn.Linear(feedforward, dimension)
        )

    def forward(self, states: Tensor) -> Tensor:
        states = states + self.attention(self.attention_norm(states))
        return states + self.feedforward(self.feedforward_norm(states))


class Decoder(nn.Module):
    """Turns tokens into hidden states. Its `output` turns a hidden state into the logits of the token asked for there.

    Args:
        vocabulary_size: number of tokens.
        layers: number of layers.
        dimension: of the hidden states.
        heads: of each attention; an even number.
        feedforward: width of the feed-forward networks.
        activation: gives the weights of every attention.
        same_scale_at: the number of keys at which scores are not scaled, if they are to grow with the logarithm of the
            number of keys; None for scores of the same scale at any number.
    """

    def __init__(
        self,
        *,
        vocabulary_size: int,
        layers: int,
        dimension: int,
        heads: int,
        feedforward: int,
        activation: sharmix.Activation,
        same_scale_at: int | None = None,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary_size, dimension)
        nn.init.normal_(self.embedding.weight, std=dimension**-0.5)
        attentions = (SelfAttention(dimension, heads, activation, same_scale_at) for _ in range(layers))
        self.layers = nn.Sequential(*(Layer(dimension, feedforward, attention) for attention in attentions))
        self.norm, self.output = nn.LayerNorm(dimension), nn.Linear(dimension, vocabulary_size)

    def forward(self, tokens: Tensor) -> Tensor:
        """Hidden states [n, length, dimension] of tokens [n, length]."""
        return self.norm(self.layers(self.embedding(tokens)))
