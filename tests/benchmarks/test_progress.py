"""What a benchmark says of its progress where no terminal shows a bar."""

import io

from rich.console import Console

from benchmarks.progress import ProgressOrLines


def written(**options):
    """The text of a part of twelve steps, half a minute each, and of a part of two steps."""
    clock, text = [0.0], io.StringIO()
    with ProgressOrLines(Console(file=text, width=80, get_time=lambda: clock[0], **options)) as progress:
        for part, steps in (("maps", 12), ("layers", 2)):
            bar = progress.add_task(part, total=steps)
            for _ in range(steps):
                clock[0] += 30
                progress.advance(bar)
    return text.getvalue()


def test_a_file_gets_a_line_after_ten_steps_and_at_the_end_of_a_part():
    assert written().splitlines() == [
        "maps: 10 of 12 done, 2 left, 5.0 minutes gone",
        "maps: 12 of 12 done, 0 left, 6.0 minutes gone",
        "layers: 2 of 2 done, 0 left, 7.0 minutes gone",
    ]


def test_a_terminal_gets_the_bar_alone():
    text = written(force_terminal=True)
    assert "100%" in text
    assert "minutes gone" not in text
