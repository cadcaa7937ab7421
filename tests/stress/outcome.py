"""What a stage of the campaign has found."""

from dataclasses import dataclass, field


class Lost(Exception):
    """A row, a record or a checkpoint is gone, half-written or left over."""


class Wrong(Exception):
    """A number is wrong, or the run used other data or weights, without any message."""


@dataclass
class Outcome:
    """The trials of one stage, counted by how they ended.

    Attributes:
        what: what the stage tries, in a few words.
        tried: number of trials.
        survived: number of trials that ended as promised.
        lost: number of trials that ended in `Lost`.
        wrong: number of trials that ended in `Wrong`.
        failures: every trial that did not survive, and how to repeat it.
    """

    what: str
    tried: int = 0
    survived: int = 0
    lost: int = 0
    wrong: int = 0
    failures: list[str] = field(default_factory=list)
