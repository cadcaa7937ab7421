"""Logits and labels of test sets with public probabilities, and of networks that the suite trained."""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import experiments
import sharmix
from experiments.errors import ConfigurationError
from experiments.files import kept
from experiments.record import load_record
from experiments.run_folder import RECORD
from experiments.settings import build_activation
from reporting.yaml_files import read_yaml
from studies.networks import OUTPUTS, finished_folder, run_of
from studies.public_files import read_public_file

PROBABILITIES = Path(__file__).with_name("probabilities.yaml")
PUBLIC = "public"  # stands for a network of which only the probabilities are known
KEPT = OUTPUTS / "studies" / "logits"


class LabelledLogits(NamedTuple):
    """Logits with their labels.

    Attributes:
        logits: finite, float64 [n, classes].
        labels: class indices, int64 [n].
        activation: the map with which the network was trained; softmax where only probabilities are public.
    """

    logits: Tensor
    labels: Tensor
    activation: sharmix.Activation


def probability_set(name: str, data: Path | None) -> LabelledLogits:
    """The logits log p of public probabilities p. They differ from the true logits by a constant in each row.

    A probability of exactly 0 counts as the smallest positive one of the set, so that all logits are finite.

    Args:
        name: a key of `probabilities.yaml`.
        data: folder of the data sets.

    Raises:
        DataError: a file is not there, or has another content.
    """
    p, labels = public_probabilities(name, data)
    return LabelledLogits(p.clamp_min(p[p > 0].min()).log(), labels, sharmix.Softmax())


def public_probabilities(name: str, data: Path | None) -> tuple[Tensor, Tensor]:
    """Public probabilities, float64 [n, classes], and their labels, int64 [n]. Arguments as for `probability_set`."""
    files = read_yaml(PROBABILITIES)[name]
    probabilities, labels = (_array(read_public_file(data, files[part])) for part in ("probabilities", "labels"))
    return torch.from_numpy(probabilities.astype(np.float64)), torch.from_numpy(labels.astype(np.int64))


def network_logits(overrides: Sequence[str], seed: int, data: Path | None) -> LabelledLogits:
    """The logits of a finished run for its test examples. They are computed once and kept in a file.

    Args:
        overrides: of run.py, as `studied_networks` gives them: [`experiment=airline`, `activation=entmax`].
        seed: of the run.
        data: folder of the data sets.

    Raises:
        ConfigurationError: there is no finished run, or its map has learned orders, which are not kept.
        DataError: the data set cannot be loaded, or is not the data set of the run.
    """
    run = run_of(overrides)
    folder = finished_folder(overrides, seed)
    activation = build_activation(run.settings.activation)
    if activation.entropy_parameters():
        raise ConfigurationError(f"{folder}: its map has learned orders; give a run of an activation with fixed ones")
    file = KEPT / run.name / f"seed-{seed}-{str(load_record(folder / RECORD).weights_digest)[:16]}.npz"
    content = kept(file, lambda: _computed(folder, data if "folder" in run.settings.data else None))
    with np.load(BytesIO(content)) as arrays:
        logits, labels = (torch.from_numpy(arrays[part]) for part in LabelledLogits._fields[:2])
    return LabelledLogits(logits, labels, activation)


def _computed(folder: Path, data: Path | None) -> bytes:
    """The logits and labels of a run's test split, as the content of an .npz file."""
    module, data_module = experiments.load_run(folder, data)
    with torch.inference_mode():
        batches = [(module(batch.inputs), batch.targets) for batch in data_module.test_dataloader()]
    logits, labels = (torch.cat(parts).numpy() for parts in zip(*batches, strict=True))
    content = BytesIO()
    np.savez(content, logits=logits.astype(np.float64), labels=labels)
    return content.getvalue()


def _array(content: bytes) -> NDArray[Any]:
    return np.load(BytesIO(content), allow_pickle=False)
