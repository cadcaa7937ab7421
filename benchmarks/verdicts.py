"""Whether a measured number meets its goal."""


def at_most(goal: float, low: float, high: float) -> str:
    """`met` or `missed` where the whole interval is on one side of the goal, else `undecided`."""
    return "met" if high <= goal else "missed" if low > goal else "undecided"


def at_least(goal: float, low: float, high: float) -> str:
    """`met` where the whole interval is at the goal or above, `missed` where it is below, else `undecided`."""
    return at_most(-goal, -high, -low)
