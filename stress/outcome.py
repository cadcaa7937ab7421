"""What a stage of the campaign has found."""

from dataclasses import dataclass, field


@dataclass
class Outcome:
    """The trials of one stage, counted by how they ended.

    Attributes:
        what: what was tried, in a few words.
        tried: how many trials there were.
        survived: trials that ended as promised.
        lost: trials that lost a row, a record or a checkpoint, or left half of one.
        wrong: trials that ended in a wrong number, or with other data or weights, without a word.
        failures: every trial that did not survive, with the command that repeats it.
    """

    what: str
    tried: int = 0
    survived: int = 0
    lost: int = 0
    wrong: int = 0
    failures: list[str] = field(default_factory=list)
