"""Damage to files, drawn at random and described in a few words."""

import os
import random
from collections.abc import Callable
from pathlib import Path


def spoil(draw: random.Random, file: Path, other: bytes) -> str:
    """Damage the bytes of a file, at times by the content of another; says how, after the file's name."""
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
    return _replaced(file, bytes(content), f"{how} at byte {where}")


def edit(draw: random.Random, file: Path) -> str:
    """Change lines or fields of a text; says how, after the file's name."""
    lines = file.read_bytes().split(b"\n")
    how, number = draw.choice([*_EDITS]), draw.randrange(len(lines))
    return _replaced(file, b"\n".join(_EDITS[how](draw, lines, number)), f"{how} at line {number + 1}")


def replace_kind(draw: random.Random, file: Path) -> str:
    """Put something else than a file in its place; says what, after the file's name."""
    kind = draw.choice([*_KINDS])
    file.unlink()
    _KINDS[kind](file)
    return f"{file.name}: {kind}"


Lines = list[bytes]


def _at(put: Callable[[random.Random, bytes], list[bytes]]) -> Callable[[random.Random, Lines, int], Lines]:
    return lambda draw, lines, number: lines[:number] + put(draw, lines[number]) + lines[number + 1 :]


def _field(put: Callable[[list[bytes], int], list[bytes]]) -> Callable[[random.Random, Lines, int], Lines]:
    def change(draw: random.Random, line: bytes) -> list[bytes]:
        separator = b"," if b"," in line else b" "
        fields = line.split(separator)
        return [separator.join(put(fields, draw.randrange(len(fields))))]

    return _at(change)


_EDITS: dict[str, Callable[[random.Random, Lines, int], Lines]] = {
    "a line less": _at(lambda draw, line: []),
    "a line doubled": _at(lambda draw, line: [line, line]),
    "an empty line": _at(lambda draw, line: [b"", line]),
    "no line after it": lambda draw, lines, number: [*lines[:number], b""],
    "other order": lambda draw, lines, number: [lines[0], *draw.sample(lines[1:], len(lines) - 1)],
    "a field less": _field(lambda fields, at: fields[:at] + fields[at + 1 :]),
    "a field more": _field(lambda fields, at: [*fields[:at], b"more", *fields[at:]]),
    "an empty field": _field(lambda fields, at: [*fields[:at], b"", *fields[at + 1 :]]),
    "another field": _field(lambda fields, at: [*fields[:at], b"-1e999", *fields[at + 1 :]]),
    "a field reversed": _field(lambda fields, at: [*fields[:at], fields[at][::-1], *fields[at + 1 :]]),
    "a quote": _at(lambda draw, line: [line + b'"']),
    "a zero byte": _at(lambda draw, line: [line + b"\0"]),
    "not UTF-8": _at(lambda draw, line: [line + b"\xff\xfe"]),
    "a megabyte": _at(lambda draw, line: [line + b"word " * 200_000]),
    "many digits": _at(lambda draw, line: [b"9" * 10_000]),
    "Windows lines": lambda draw, lines, number: [line + b"\r" for line in lines],
    "a mark of UTF-8": lambda draw, lines, number: [b"\xef\xbb\xbf" + lines[0], *lines[1:]],
    "UTF-16": lambda draw, lines, number: [b"\n".join(lines).decode(errors="replace").encode("utf-16")],
}
_KINDS: dict[str, Callable[[Path], object]] = {
    "missing": lambda file: None,
    "a folder": lambda file: file.mkdir(),
    "a named pipe": os.mkfifo,
    "a link to itself": lambda file: file.symlink_to(file),
    "a link to nothing": lambda file: file.symlink_to(file.with_name("nothing")),
    "an endless device": lambda file: file.symlink_to("/dev/zero"),
    "an empty device": lambda file: file.symlink_to("/dev/null"),
}


def _replaced(file: Path, content: bytes, how: str) -> str:
    file.unlink()  # it may be a link of many trials
    file.write_bytes(content)
    return f"{file.name}: {how}"
