"""Times as people read them."""


def duration(seconds: float) -> str:
    """A time as `9 s`, `12 min`, `2 h 5 min` or `12 h`."""
    if round(seconds) < 60:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    if hours >= 10:
        return f"{round(seconds / 3600)} h"
    if not hours:
        return f"{minutes} min"
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"
