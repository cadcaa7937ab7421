"""Damage to files, drawn at random and described in a few words."""

import random
from pathlib import Path


def spoil(draw: random.Random, file: Path, other: bytes) -> str:
    """Damage a file, at times by the content of another; says how, after the file's name."""
    content = bytearray(file.read_bytes())
    how = draw.choice(("a bit", "a bit", "some bytes", "cut", "empty", "longer", "swapped"))
    where = draw.randrange(max(len(content), 1))
    if how == "a bit" and content:
        content[where] ^= 1 << draw.randrange(8)
    elif how == "some bytes":
        content[where : where + 16] = draw.randbytes(16)
    elif how == "cut":
        del content[where:]
    elif how == "longer":
        content += draw.randbytes(draw.randint(1, 100))
    else:
        content = bytearray(b"" if how == "empty" else other)
    file.write_bytes(content)
    return f"{file.name}: {how} at byte {where} of {file.stat().st_size}"
