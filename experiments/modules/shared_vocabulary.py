"""The loss of an output layer whose classes several processes share, each of which has tokens of its own."""

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import pad

from experiments.errors import ConfigurationError
from sharmix import Activation
from sharmix.parallel import VocabParallelLoss, vocab_parallel_linear_loss

IGNORED = -100


def check_shared(activation: Activation) -> None:
    """Raise a ConfigurationError unless processes can share the classes of the activation."""
    try:
        VocabParallelLoss(activation)
    except ValueError as error:
        raise ConfigurationError(f"module.vocab_parallel=true: {error}") from error


def shared_loss(
    activation: Activation, hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, label_smoothing: float
) -> tuple[Tensor, Tensor]:
    """The sum of the losses of all processes' tokens, and their number, the same on every process.

    A process computes the logits of its part of the classes, for the tokens of all processes. Its gradients by hidden,
    weight and bias are those parts of the gradient that no other process has: the sum over the processes is the whole
    gradient. So it is for learned orders.

    Args:
        hidden: the states of this process's tokens, [tokens, features]; a process may have more tokens than another.
        weight, bias: the whole output layer, [classes, features] and [classes], the same on every process.
        targets: the classes of this process's tokens, [tokens].
    """
    rank, processes = dist.get_rank(), dist.get_world_size()
    most = torch.tensor(len(hidden), device=hidden.device)
    dist.all_reduce(most, dist.ReduceOp.MAX)
    missing = int(most) - len(hidden)
    # Every process computes the full gradient by the orders; a share of it remains, and the value does not change.
    orders = [one.detach().lerp(one, 1 / processes) if isinstance(one, Tensor) else one for one in activation.orders()]
    classes = _of_all(pad(targets, (0, missing), value=IGNORED))
    weights, biases = weight.tensor_split(processes), bias.tensor_split(processes)
    total = vocab_parallel_linear_loss(
        *(_of_all(pad(hidden, (0, 0, 0, missing))), weights[rank], biases[rank], classes, *orders),
        sizes=[len(part) for part in weights],
        label_smoothing=label_smoothing,
        reduction="sum",
    )
    return total, (classes != IGNORED).sum()


def _of_all(own: Tensor) -> Tensor:
    """The rows of all processes, which have equally many; the gradient passes to this process's own."""
    parts = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, own.detach().contiguous())
    parts[dist.get_rank()] = own
    return torch.cat(parts)
