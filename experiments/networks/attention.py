"""Multi-head attention whose weights come from any registered activation."""

import torch
from torch import Tensor, nn

import sharmix
from experiments.settings import ActivationSettings, build_activation

KeysValues = tuple[Tensor, Tensor]  # keys and values by head: [n, heads, length, dimension of a head] each


class Attention(nn.Module):
    """Σⱼ wⱼ vⱼ for each head, w = activation(q·k / √d), dropout on w; a linear layer maps the joined heads.

    The activation maps scores [n, heads, queries, keys] to weights.

    Source: Vaswani et al., Attention Is All You Need, 2017, section 3.2.
    """

    def __init__(self, dimension: int, heads: int, dropout: float, activation: sharmix.Activation) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.output = (nn.Linear(dimension, dimension) for _ in range(4))
        self.dropout, self.activation = nn.Dropout(dropout), activation

    def attended(self, states: Tensor) -> KeysValues:
        """Keys and values of states [n, length, dimension], for `forward`."""
        return self._by_head(self.key(states)), self._by_head(self.value(states))

    def forward(self, states: Tensor, attended: KeysValues, allowed: Tensor) -> Tensor:
        """The output for states [n, queries, dimension]; `allowed` is bool [n or 1, 1, queries or 1, keys]."""
        queries, (keys, values) = self._by_head(self.query(states)), attended
        scores = queries @ keys.mT * queries.shape[-1] ** -0.5
        weights = self.dropout(self.activation(scores.masked_fill(~allowed, float("-inf"))))
        return self.output((weights @ values).transpose(1, 2).flatten(2))

    def _by_head(self, states: Tensor) -> Tensor:
        return states.unflatten(-1, (self.heads, -1)).transpose(1, 2)


def attention_activation(settings: ActivationSettings, heads: int) -> sharmix.Activation:
    """The activation that settings name. `entmax_learned` and `sharmix_learned` learn separate orders for each head."""
    if settings.name.endswith("_learned"):
        learned = dict(build_activation(settings, "model.attention").named_parameters())
        orders = {
            name: torch.full((heads, 1, 1), learned[name].item()) for name in ("alpha", "q", "r") if name in learned
        }
        settings = settings.model_copy(update={"parameters": settings.parameters | orders})
    return build_activation(settings, "model.attention")
