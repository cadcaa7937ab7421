"""The loss of logits whose classes are split over processes, as a module."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from sharmix._activation import Activation
from sharmix._fenchel_young import UnweightedLossOptions
from sharmix._private_torch import process_group
from sharmix.activations import SharmaMittal
from sharmix.criteria import FenchelYoungLoss
from sharmix.parallel._solution import FOR_SOFTMAX, allowed_orders
from sharmix.parallel.loss import as_tensors, loss_and_counts

_FEWEST, _MOST = 8, 64  # candidates that a criterion chooses from


class VocabParallelLoss(FenchelYoungLoss):
    """The Fenchel–Young loss of an activation, of logits whose classes are split over a process group.

        L(z, y) = Ω*(z) − z·y + Ω(y)

    All is as for `vocab_parallel_loss`. The module chooses the number of candidates itself, the same on every process:
    twice the largest support of the last batches, between 8 and 64. It keeps the number while it is compiled.

    Args:
        activation: `SharMiX`, `Entmax`, `Sparsemax` or `Normmax`, with fixed or learned orders, or such a name as
            `build_activation` accepts. Every process must give learned orders the same starts.
        ignore_index, reduction, label_smoothing: as for `FenchelYoungLoss`.
        group, sizes: as for `vocab_parallel_loss`; a DTensor brings its own.

    Shape:
        logits (*, C) with the C classes of this process, a plain tensor, or a DTensor of all classes, split over its
        last dimension alone, as of a layer under `ColwiseParallel(use_local_output=False)`; targets: indices (*) among
        all classes. The loss is a scalar, or has the shape of the targets.

    Raises:
        TypeError, ValueError, RuntimeError: as for `vocab_parallel_loss`; ValueError also for a DTensor of another
            placement, and for an activation or objective that is not allowed.

    Example:
        >>> import sharmix.parallel, torch.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> criterion = sharmix.parallel.VocabParallelLoss("sparsemax")
        >>> criterion(torch.tensor([[1.0, 0.5, -1.0]]), torch.tensor([0]))
        tensor(0.0625)
        >>> dist.destroy_process_group()
    """

    activation: SharmaMittal

    def __init__(
        self,
        activation: Activation | str,
        *,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
        group: dist.ProcessGroup | None = None,
        sizes: Sequence[int] | None = None,
    ) -> None:
        super().__init__(activation, None, ignore_index, reduction, label_smoothing)
        if not isinstance(self.activation, SharmaMittal):
            raise ValueError(f"{self.activation} is not of the Sharma–Mittal family; {FOR_SOFTMAX}")
        if self.activation.objective != "fenchel_young":
            raise ValueError(f"objective={self.activation.objective!r} of the activation is not allowed here")
        q, r, temperature = as_tensors(self.activation.orders())
        if not (q.is_meta or r.is_meta or temperature.is_meta):
            allowed_orders(q, r, temperature, classes=2)
        self.group_name = group and group.group_name  # a group itself cannot be copied
        self.sizes, self.candidates = sizes, _MOST

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The loss of logits against targets, after `reduction`."""
        group = process_group(self.group_name) if self.group_name else None
        sizes = self.sizes
        if hasattr(logits, "placements"):  # a DTensor, whose module takes most of a second to import
            logits, group, sizes = _local_part(logits)
        options: dict[str, Any] = {name: getattr(self, name) for name in UnweightedLossOptions.__annotations__}
        orders = self.activation.orders()
        loss, counts = loss_and_counts(logits, targets, orders, group, sizes, self.candidates, **options)
        if not torch.compiler.is_compiling():
            support, uncertified, _ = counts.tolist()
            wanted = 2 * (self.candidates if uncertified else max(support, self.candidates // 4))
            self.candidates = min(_MOST, max(_FEWEST, 1 << (wanted - 1).bit_length()))
        return loss


def _local_part(logits: Any) -> tuple[Tensor, dist.ProcessGroup, list[int]]:
    """This process's part of a DTensor, its process group, and the number of classes on each process."""
    placements, mesh = logits.placements, logits.device_mesh
    if len(placements) != 1 or not placements[0].is_shard(logits.dim() - 1):
        raise ValueError(
            f"logits with placements {tuple(placements)} are not allowed; they must be split over their last dimension "
            "alone, (Shard(-1),), on a mesh of one dimension"
        )
    classes, processes = logits.shape[-1], mesh.size()
    most = -(-classes // processes)
    sizes = [max(0, min(most, classes - i * most)) for i in range(processes)]
    return logits.to_local(), mesh.get_group(), sizes
