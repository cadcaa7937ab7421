"""The loss of an output layer whose words are divided among processes, each of which has tokens of its own."""

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import pad

from sharmix import Activation
from sharmix.parallel import vocab_parallel_linear_loss

_NO_TOKEN = -100


def losses_of_all_tokens(
    activation: Activation,
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor,
    targets: Tensor,
    batch_weight: float,
    label_smoothing: float,
) -> tuple[Tensor, float, float]:
    """The sum of the losses of all processes' tokens, the number of these tokens, and their weight in the gradient.

    A process computes the logits of its part of the words, for the tokens of all processes. Its gradients by hidden,
    weight, bias and learned orders are a part of the whole: the sum over the processes is the gradient of the total.

    Args:
        hidden: the states of this process's tokens, [tokens, features]; a process may have more tokens than another.
        weight, bias: the whole output layer, [words, features] and [words], the same on every process.
        targets: the words of this process's tokens, [tokens].
        batch_weight: the weight of this process's tokens in the gradient of a step.
    """
    rank, processes = dist.get_rank(), dist.get_world_size()
    counts, batch_weights = _of_all(hidden.new_tensor([[len(hidden), batch_weight]], dtype=torch.float64)).T.tolist()
    missing = int(max(counts)) - len(hidden)
    # Every process computes the full gradient by the orders; a share of it remains, and the value does not change.
    orders = [one.detach().lerp(one, 1 / processes) if isinstance(one, Tensor) else one for one in activation.orders()]
    words = _of_all(pad(targets, (0, missing), value=_NO_TOKEN))
    weights, biases = weight.tensor_split(processes), bias.tensor_split(processes)
    total = vocab_parallel_linear_loss(
        *(_of_all(pad(hidden, (0, 0, 0, missing))), weights[rank], biases[rank], words, *orders),
        sizes=[len(part) for part in weights],
        ignore_index=_NO_TOKEN,
        label_smoothing=label_smoothing,
        reduction="sum",
    )
    return total, sum(counts), sum(batch_weights)


def _of_all(own: Tensor) -> Tensor:
    """The rows of all processes, which have equally many; the gradient passes to this process's own."""
    parts = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, own.detach().contiguous())
    parts[dist.get_rank()] = own
    return torch.cat(parts)
