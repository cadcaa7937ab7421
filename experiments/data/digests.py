"""SHA-256 digests of tensors and of folders of images."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from experiments.data.progress import announced

_PART = 4096  # images between two looks at the clock


def tensor_digest(*tensors: Tensor) -> bytes:
    """The SHA-256 of the types, shapes and values of dense tensors."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(f"{tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().flatten().view(torch.uint8).numpy())
    return digest.digest()


def folder_digest(paths: Sequence[str], root: str, size: Callable[[str], int]) -> bytes:
    """The SHA-256 of the names and sizes of images below the folder `root`.

    The bytes of a million photographs take minutes to read, at every start of a run.

    Args:
        paths: of the images.
        root: the folder.
        size: the size of an image in bytes, from its path.
    """
    digest, folder = hashlib.sha256(), Path(root).name
    parts = [paths[start : start + _PART] for start in range(0, len(paths), _PART)]
    for part in announced(parts, _PART, len(paths), f"looking at {root}"):
        lines = [f"{folder}{path.removeprefix(root)} {size(path)}\n" for path in part]
        digest.update("".join(lines).encode(errors="surrogateescape"))
    return digest.digest()
