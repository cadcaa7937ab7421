"""Times as people read them."""


def duration(seconds: float) -> str:
    """A time as `9 s`, `12 min` or `2 h 5 min`."""
    minutes = round(seconds / 60)
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
