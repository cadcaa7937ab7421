"""Damage to the content of a file: as disks, downloads, editors and scripts do it."""

import random


def mutated(content: bytes, seed: int) -> bytes:
    """The content with one kind of damage, which the seed chooses, as it does its places."""
    chance = random.Random(seed)
    return chance.choice(KINDS)(content, chance)


def _flip(content: bytes, chance: random.Random) -> bytes:
    """One to eight bits."""
    changed = bytearray(content)
    for _ in range(chance.randint(1, 8) if content else 0):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _overwrite(content: bytes, chance: random.Random) -> bytes:
    """Some bytes by zeros, by 0xff or by random ones."""
    start, length = chance.randrange(len(content) + 1), chance.randint(1, 64)
    filling = chance.choice([bytes(length), b"\xff" * length, chance.randbytes(length)])
    return content[:start] + filling + content[start + length :]


def _cut(content: bytes, chance: random.Random) -> bytes:
    """The end, or a piece within."""
    start = chance.randrange(len(content) + 1)
    return content[:start] + chance.choice([b"", content[start + chance.randint(1, 200) :]])


def _insert(content: bytes, chance: random.Random) -> bytes:
    """What text files and tables dislike."""
    start = chance.randrange(len(content) + 1)
    what = [b"\0", b'"', b"\r", b"\n", b",", b"\t", b"\xef\xbb\xbf", b"\xff\xfe", b"\xed\xa0\x80", b"x" * 200_000]
    return content[:start] + chance.choice(what) + content[start:]


def _lines(content: bytes, chance: random.Random) -> bytes:
    """Lines doubled, left out, moved or joined."""
    lines = content.split(b"\n")
    at, other = chance.randrange(len(lines)), chance.randrange(len(lines))
    match chance.randrange(4):
        case 0:
            lines.insert(other, lines[at])
        case 1:
            del lines[at]
        case 2:
            lines[at], lines[other] = lines[other], lines[at]
        case 3:
            lines[at : at + 2] = [b"".join(lines[at : at + 2])]
    return b"\n".join(lines)


def _columns(content: bytes, chance: random.Random) -> bytes:
    """Two columns exchanged, in all lines or in one."""
    lines = [line.split(b",") for line in content.split(b"\n")]
    chosen = lines if chance.random() < 0.5 else [chance.choice(lines)]
    one, two = chance.randrange(4), chance.randrange(4)
    for fields in chosen:
        if len(fields) > max(one, two):
            fields[one], fields[two] = fields[two], fields[one]
    return b"\n".join(b",".join(fields) for fields in lines)


def _whole(content: bytes, chance: random.Random) -> bytes:
    """All of it: empty, reversed, random, or in UTF-16."""
    text = content.decode("latin-1")
    return chance.choice([b"", content[::-1], chance.randbytes(len(content)), text.encode("utf-16"), content * 2])


KINDS = (_flip, _flip, _overwrite, _cut, _insert, _lines, _columns, _whole)
