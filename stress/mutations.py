"""Damage to files, drawn at random and described in a few words: as disks, downloads, editors and scripts do it."""

import os
import random
from collections.abc import Callable
from pathlib import Path

Bytes = Callable[[random.Random, bytes, int], bytes]  # damages a content at a byte
Lines = Callable[[random.Random, list[bytes], int], list[bytes]]  # damages lines at one of them


def mutated(draw: random.Random, content: bytes, other: bytes = b"") -> tuple[bytes, str]:
    """A content with one kind of damage, at times replaced by another content; and how, in words."""
    if draw.random() < 0.5:
        how, at = draw.choice([*_BYTES]), draw.randrange(max(len(content), 1))
        return (_BYTES[how](draw, content, at) if how != "swapped" else other), f"{how} at byte {at}"
    lines = content.split(b"\n")
    how, at = draw.choice([*_LINES]), draw.randrange(len(lines))
    return b"\n".join(_LINES[how](draw, lines, at)), f"{how} at line {at + 1}"


def mutate(draw: random.Random, file: Path, other: bytes) -> str:
    """Damage a file as `mutated`; says how, after the file's name."""
    content, how = mutated(draw, file.read_bytes(), other)
    file.unlink()  # it may be a link of many trials
    file.write_bytes(content)
    return f"{file.name}: {how}"


def replace_kind(draw: random.Random, file: Path) -> str:
    """Put something else than a file in its place; says what, after the file's name."""
    kind = draw.choice([*_KINDS])
    file.unlink()
    _KINDS[kind](file)
    return f"{file.name}: {kind}"


def _over(put: Callable[[random.Random], bytes]) -> Bytes:
    def change(draw: random.Random, content: bytes, at: int) -> bytes:
        new = put(draw)
        return content[:at] + new + content[at + len(new) :]

    return change


def _line(put: Callable[[bytes], list[bytes]]) -> Lines:
    return lambda draw, lines, at: lines[:at] + put(lines[at]) + lines[at + 1 :]


def _field(put: Callable[[list[bytes], int], list[bytes]]) -> Lines:
    def change(draw: random.Random, lines: list[bytes], at: int) -> list[bytes]:
        separator = b"," if b"," in lines[at] else b" "
        fields = lines[at].split(separator)
        return [*lines[:at], separator.join(put(fields, draw.randrange(len(fields)))), *lines[at + 1 :]]

    return change


def _columns(draw: random.Random, lines: list[bytes], at: int) -> list[bytes]:
    tables = [line.split(b",") for line in lines]
    one, two = draw.sample(range(4), 2)
    for fields in tables:
        if len(fields) > max(one, two):
            fields[one], fields[two] = fields[two], fields[one]
    return [b",".join(fields) for fields in tables]


def _bit(draw: random.Random, content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1 << draw.randrange(8)]) + content[at + 1 :] if content else b""


_BYTES: dict[str, Bytes] = {
    "a bit": _bit,
    "another bit": _bit,  # twice as often
    "random bytes": _over(lambda draw: draw.randbytes(draw.randint(1, 64))),
    "zeros": _over(lambda draw: bytes(draw.randint(1, 64))),
    "cut": lambda draw, content, at: content[:at],
    "a piece less": lambda draw, content, at: content[:at] + content[at + draw.randint(1, 200) :],
    "a byte more": lambda draw, content, at: content[:at] + bytes([draw.choice(b'\0"\r,\t')]) + content[at:],
    "longer": lambda draw, content, at: content + draw.randbytes(draw.randint(1, 100)),
    "doubled": lambda draw, content, at: content * 2,
    "reversed": lambda draw, content, at: content[::-1],
    "empty": lambda draw, content, at: b"",
    "swapped": lambda draw, content, at: content,
}
_LINES: dict[str, Lines] = {
    "a line less": _line(lambda line: []),
    "a line doubled": _line(lambda line: [line, line]),
    "an empty line": _line(lambda line: [b"", line]),
    "a line joined": lambda draw, lines, at: [*lines[:at], b"".join(lines[at : at + 2]), *lines[at + 2 :]],
    "no line after it": lambda draw, lines, at: [*lines[:at], b""],
    "other order": lambda draw, lines, at: [lines[0], *draw.sample(lines[1:], len(lines) - 1)],
    "columns exchanged": _columns,
    "a field less": _field(lambda fields, at: fields[:at] + fields[at + 1 :]),
    "a field more": _field(lambda fields, at: [*fields[:at], b"more", *fields[at:]]),
    "an empty field": _field(lambda fields, at: [*fields[:at], b"", *fields[at + 1 :]]),
    "another field": _field(lambda fields, at: [*fields[:at], b"-1e999", *fields[at + 1 :]]),
    "a field reversed": _field(lambda fields, at: [*fields[:at], fields[at][::-1], *fields[at + 1 :]]),
    "not UTF-8": _line(lambda line: [line + b"\xff\xfe"]),
    "a surrogate": _line(lambda line: [b"\xed\xa0\x80" + line]),
    "a megabyte": _line(lambda line: [line + b"word " * 200_000]),
    "many digits": _line(lambda line: [b"9" * 10_000]),
    "Windows lines": lambda draw, lines, at: [line + b"\r" for line in lines],
    "a mark of UTF-8": lambda draw, lines, at: [b"\xef\xbb\xbf" + lines[0], *lines[1:]],
    "UTF-16": lambda draw, lines, at: [b"\n".join(lines).decode(errors="replace").encode("utf-16")],
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
