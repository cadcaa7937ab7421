"""SHA-256 digests of tensors and of encoded images."""

import hashlib
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from torch import Tensor

from experiments.data.progress import announced

T = TypeVar("T", bound=Hashable)
_PART = 4096  # images whose digests are joined to one
_READERS = 8  # threads: disks and networks serve several readers at once


def tensor_digest(*tensors: Tensor) -> bytes:
    """The SHA-256 of the types, shapes and values of dense tensors."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(f"{tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().flatten().view(torch.uint8).numpy())
    return digest.digest()


def images_digest(images: Sequence[T], encoded: Callable[[T], bytes], place: str) -> bytes:
    """The SHA-256 of encoded images, of which each is read once in a part.

    Args:
        images: what names each image, such as its path; equal names are the same image.
        encoded: reads the bytes of an image.
        place: where the images lie, for the line that reports progress.
    """
    digest = hashlib.sha256()
    parts = (images[start : start + _PART] for start in range(0, len(images), _PART))
    with ThreadPoolExecutor(_READERS) as readers:
        for part in announced(parts, _PART, len(images), f"hashing {place}"):
            different = [*dict.fromkeys(part)]  # a long tail may repeat images
            found = readers.map(lambda image: hashlib.sha256(encoded(image)).digest(), different)
            of_image = dict(zip(different, found, strict=True))
            digest.update(hashlib.sha256(b"".join(of_image[image] for image in part)).digest())
    return digest.digest()
