"""The hash of a data set's contents. It shows whether two runs used the same data."""

import hashlib
import json
import random
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np
import torch
from lightning.pytorch.utilities.seed import isolate_rng
from torch import Tensor

from experiments.data.local_files import LOCAL_DATA, keep, read_kept

if TYPE_CHECKING:
    from experiments.data.examples import Examples

T = TypeVar("T")
KEPT_HASHES = LOCAL_DATA / "hashes"
KEPT_FROM = 64 * 2**20  # bytes of a part: hashing them again takes longer than looking the hash up
_PART = 4096  # images whose hash is kept together
_READERS = 8  # threads: disks and networks serve several readers at once
_SILENT_SECONDS = 5.0


class Images(Protocol):
    """Encoded images that lie in files."""

    def encoded(self, index: int) -> bytes: ...

    def stamp(self, index: int) -> tuple[str, int]:
        """A text that changes when the file of the image changes, and the size of the image in bytes."""


def content_hash(splits: Mapping[str, "Examples"], *names: str) -> str:
    """The SHA-256 of the inputs and targets of all splits, in order, and of names such as the class names.

    A split with a method `digest` computes its own digest. For a split without this method, all examples are read.
    """
    whole = hashlib.sha256(json.dumps(names).encode())
    for name, examples in splits.items():
        digest = getattr(examples, "digest", None)
        own = digest() if digest else digest_by_reading(examples)
        whole.update(f"\n{name} ".encode() + own)
    return whole.hexdigest()


def tensor_digest(*tensors: Tensor) -> bytes:
    """The SHA-256 of the types, shapes and values of dense tensors."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(f"{tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().resolve_neg().flatten().view(torch.uint8).numpy())
    return digest.digest()


def digest_by_reading(examples: "Examples") -> bytes:
    """The SHA-256 of examples read with fixed seeds, so that their random numbers are the same each time."""
    digest, numbers = hashlib.sha256(), torch.arange(len(examples.targets))
    with isolate_rng(include_cuda=False):
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002  # the generator that datasets may draw from
        torch.default_generator.manual_seed(0)
        for part in announced(numbers.split(64), 64, len(numbers), f"hashing {type(examples).__name__}"):
            inputs, targets, unreadable = examples.read(part, torch.zeros_like(part))
            digest.update(tensor_digest(inputs, targets) + bytes(len(unreadable)))
    return digest.digest()


def image_digest(images: Images, count: int, place: str) -> bytes:
    """The SHA-256 of the images' encoded bytes; each file is read once.

    If reading a part takes long, its digest is kept on disk, under the names, sizes and times of the part's files.

    Args:
        images: the images.
        count: how many they are.
        place: where the images lie, for the line that reports progress.
    """
    digest = hashlib.sha256()
    starts = range(0, count, _PART)
    with ThreadPoolExecutor(_READERS) as readers:
        for start in announced(starts, _PART, count, f"hashing {place}"):
            digest.update(_digest_of_part(images, range(start, min(start + _PART, count)), readers))
    return digest.digest()


def _digest_of_part(images: Images, numbers: range, readers: ThreadPoolExecutor) -> bytes:
    stamps, sizes = zip(*map(images.stamp, numbers), strict=True)
    firsts = dict(zip(reversed(stamps), reversed(numbers), strict=True))  # a long tail may repeat images
    size = sum(dict(zip(stamps, sizes, strict=True)).values())
    source = hashlib.sha256("\n".join(stamps).encode(errors="surrogateescape")).digest()
    file = KEPT_HASHES / source.hex() if size >= KEPT_FROM else None
    if file is not None and (kept := read_kept(file, source)) is not None:
        return kept
    found = dict(zip(firsts, readers.map(lambda number: _hash(images, number), firsts.values()), strict=True))
    digest = hashlib.sha256(b"".join(found[stamp] or b"unreadable" for stamp in stamps)).digest()
    if file is not None and None not in found.values():
        keep(file, source, digest)
    return digest


def _hash(images: Images, number: int) -> bytes | None:
    """The SHA-256 of an image; None where it cannot be read."""
    try:
        return hashlib.sha256(images.encoded(number)).digest()
    except Exception:  # libraries that read tables raise various errors; the training names the image when it reads it
        return None


def announced(parts: Iterable[T], size: int, count: int, what: str) -> Iterator[T]:
    """The parts, with their sizes. From the fifth second on it prints its progress, each time after twice the time."""
    began, silent = time.monotonic(), _SILENT_SECONDS
    for number, part in enumerate(parts, 1):
        yield part
        if (passed := time.monotonic() - began) > silent:
            done = min(number * size, count)
            print(f"{what}: {done:,} of {count:,} after {passed:.0f} s", file=sys.stderr, flush=True)
            silent = 2 * passed
