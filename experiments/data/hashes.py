"""The hash of a data set's contents. It shows whether two runs used the same data."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.utilities.seed import isolate_rng
from torch import Tensor
from tqdm import tqdm

from experiments.data.randomness import seed_generators

SHOWN_AFTER = {"delay": 5.0, "mininterval": 5.0}  # seconds: tqdm shows the progress of long work alone


def content_hash(splits: Mapping[str, Any], *names: str) -> str:
    """The SHA-256 of the inputs and targets of all splits (`Examples`), in order, and of names such as class names.

    A split with a method `digest` computes its own SHA-256. For a split without this method, all examples are read.
    """
    whole = hashlib.sha256(json.dumps(names).encode())
    for name, examples in splits.items():
        own = examples.digest() if hasattr(examples, "digest") else digest_by_reading(examples)
        whole.update(f"\n{name} ".encode() + own)
    return whole.hexdigest()


def digest_by_reading(examples: Any) -> bytes:
    """The SHA-256 of examples read with fixed seeds, so that their random numbers are the same each time."""
    digest, numbers = hashlib.sha256(), torch.arange(len(examples.targets))
    with isolate_rng(include_cuda=False):
        seed_generators(0)
        for part in tqdm(numbers.split(64), f"hashing {type(examples).__name__}", **SHOWN_AFTER):
            digest.update(tensor_digest(*examples.read(part, torch.zeros_like(part))))
    return digest.digest()


def tensor_digest(*tensors: Tensor) -> bytes:
    """The SHA-256 of the types, shapes and values of dense tensors."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(f"{tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().flatten().view(torch.uint8).numpy())
    return digest.digest()


def folder_digest(paths: Sequence[str], root: str, size: Callable[[str], int]) -> bytes:
    """The SHA-256 of the names and sizes of images below the folder `root`; `size` gives the bytes of an image.

    The images themselves are not read: a million photographs would take minutes at every start of a run.
    """
    digest, folder = hashlib.sha256(), Path(root).name
    for path in tqdm(paths, f"looking at {root}", **SHOWN_AFTER):
        digest.update(f"{folder}{path.removeprefix(root)} {size(path)}\n".encode(errors="surrogateescape"))
    return digest.digest()
