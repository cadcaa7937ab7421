"""Adam with a separate learning rate for entropy parameters, and a schedule of the learning rates."""

import math
from collections.abc import Iterable
from typing import Literal

from pydantic import ValidationInfo, field_validator
from torch import nn
from torch.optim import Adam, Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from experiments.settings import AtLeastOne, Positive, Settings, Share

Parameters = Iterable[nn.Parameter]


class AdamSettings(Settings):
    """Adam. In step s = 1, 2, … its learning rates are multiplied by a schedule.

    The schedule is `constant`: 1; `inverse_square_root`: min(s/w, √(w/s)) with w warm-up steps; or `cosine`:
    (1 + cos(π (s − 1)/n))/2 in the first n steps, and 0 after them.

    Arguments: `conf/optimizer/adam.yaml`.

    Source: Vaswani et al., Attention Is All You Need, 2017, Eq. (3), in units of its largest value; Loshchilov and
    Hutter, SGDR, 2017, Eq. (5), without restarts.
    """

    learning_rate: Positive
    entropy_learning_rate: Positive
    beta1: Share = 0.9
    beta2: Share = 0.999
    warm_up_steps: AtLeastOne = 1
    cosine_steps: AtLeastOne = 1
    schedule: Literal["constant", "inverse_square_root", "cosine"] = "constant"

    @field_validator("schedule")
    @classmethod
    def _check_steps(cls, schedule: str, info: ValidationInfo) -> str:
        if schedule == "cosine" and info.data.get("cosine_steps") == 1:
            raise ValueError("needs optimizer.cosine_steps, the number of steps of the training")
        return schedule

    def optimizer(self, network: Parameters, entropy: Parameters, fused: bool) -> tuple[Optimizer, LRScheduler | None]:
        """Adam on the parameters of the network and of the entropies, and the schedule; None for a constant schedule.

        `fused`: whether one kernel updates all parameters; a gradient scaler does not allow it.
        """
        groups = [{"params": list(network), "lr": self.learning_rate}]
        if learned := list(entropy):
            groups.append({"params": learned, "lr": self.entropy_learning_rate})
        adam = Adam(groups, betas=(self.beta1, self.beta2), fused=fused)
        return adam, None if self.schedule == "constant" else LambdaLR(adam, self._share)

    def _share(self, steps_before: int) -> float:
        if self.schedule == "cosine":
            return (1 + math.cos(math.pi * min(1, steps_before / self.cosine_steps))) / 2
        step, warm_up = steps_before + 1, self.warm_up_steps
        return min(step / warm_up, math.sqrt(warm_up / step))
