"""How the learning rate goes from step to step."""

import math

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from experiments.configuration import OptimizerSettings


def learning_rate_schedule(optimizer: Optimizer, settings: OptimizerSettings) -> LambdaLR:
    """The schedule of all learning rates, to be stepped after each step of the optimizer.

    Step s = 1, 2, … has the share 1 of the configured rate (`constant`), or min(s/w, √(w/s)) (`inverse_square_root`)
    with w steps of warm-up, so that the configured rate is the largest.

    Source: Vaswani et al., Attention Is All You Need, 2017, Eq. (3), in units of its largest value.
    """

    def share(steps_before: int) -> float:
        step, warm_up = steps_before + 1, settings.warm_up_steps
        return min(step / warm_up, math.sqrt(warm_up / step))

    return LambdaLR(optimizer, share if settings.schedule == "inverse_square_root" else lambda _: 1.0)
