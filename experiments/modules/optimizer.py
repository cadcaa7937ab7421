"""Adam with a separate learning rate for entropy parameters."""

from collections.abc import Iterable
from functools import partial

from pydantic import ValidationInfo, field_validator
from torch import nn
from torch.optim import Adam, Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from experiments.modules.learning_rate_schedule import Schedule, share
from experiments.settings import AtLeastOne, Positive, Settings, Share

Parameters = Iterable[nn.Parameter]


class AdamSettings(Settings):
    """Adam, whose learning rates follow a schedule. Arguments: `conf/optimizer/adam.yaml`."""

    learning_rate: Positive
    entropy_learning_rate: Positive
    beta1: Share = 0.9
    beta2: Share = 0.999
    warm_up_steps: AtLeastOne = 1
    cosine_steps: AtLeastOne = 1
    schedule: Schedule = "constant"

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
        factor = partial(share, self.schedule, self.warm_up_steps, self.cosine_steps)
        return adam, None if self.schedule == "constant" else LambdaLR(adam, factor)
