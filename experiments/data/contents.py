"""The hash of a data set's contents. It shows whether two runs used the same data."""

import hashlib
import json
import random
from collections.abc import Mapping

import numpy as np
import torch
from lightning.pytorch.utilities.seed import isolate_rng

from experiments.data.digests import tensor_digest
from experiments.data.examples import Examples
from experiments.data.progress import announced


def content_hash(splits: Mapping[str, Examples], *names: str) -> str:
    """The SHA-256 of the inputs and targets of all splits, in order, and of names such as the class names.

    A split with a method `digest` computes its own digest. For a split without this method, all examples are read.
    """
    whole = hashlib.sha256(json.dumps(names).encode())
    for name, examples in splits.items():
        digest = getattr(examples, "digest", None)
        own = digest() if digest else digest_by_reading(examples)
        whole.update(f"\n{name} ".encode() + own)
    return whole.hexdigest()


def digest_by_reading(examples: Examples) -> bytes:
    """The SHA-256 of examples read with fixed seeds, so that their random numbers are the same each time."""
    digest, numbers = hashlib.sha256(), torch.arange(len(examples.targets))
    with isolate_rng(include_cuda=False):
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002  # the generator that datasets may draw from
        torch.default_generator.manual_seed(0)
        for part in announced(numbers.split(64), 64, len(numbers), f"hashing {type(examples).__name__}"):
            digest.update(tensor_digest(*examples.read(part, torch.zeros_like(part))))
    return digest.digest()
