"""Schedules of the learning rates, which they multiply in step s = 1, 2, …

`constant`: 1; `inverse_square_root`: min(s/w, √(w/s)) with w warm-up steps; or `cosine`: (1 + cos(π (s − 1)/n))/2 in
the first n steps, and 0 after them.

Source: Vaswani et al., Attention Is All You Need, 2017, Eq. (3), in units of its largest value; Loshchilov and Hutter,
SGDR, 2017, Eq. (5), without restarts.
"""

import math
from typing import Literal

Schedule = Literal["constant", "inverse_square_root", "cosine"]


def share(schedule: Schedule, warm_up_steps: int, cosine_steps: int, steps_before: int) -> float:
    """The factor of the learning rates after so many steps."""
    if schedule == "cosine":
        return (1 + math.cos(math.pi * min(1, steps_before / cosine_steps))) / 2
    step = steps_before + 1
    return 1 if schedule == "constant" else min(step / warm_up_steps, math.sqrt(warm_up_steps / step))
