"""Logits and labels of test sets with public probabilities, and of networks that the suite trained."""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

import experiments
import sharmix
from experiments.composition import settings_of
from experiments.errors import ConfigurationError
from experiments.files import kept
from experiments.record import load_record
from experiments.run_folder import RECORD
from experiments.settings import build_activation
from reporting.records.yaml_files import read_yaml
from studies.networks import OUTPUTS, finished_folder
from studies.public_files import read_public_file
from studies.study import Settings, Task

PROBABILITIES = Path(__file__).with_name("probabilities.yaml")
PUBLIC = "public"  # for a network whose probabilities alone are known
KEPT = OUTPUTS / "studies" / "logits"


class LabelledLogits(NamedTuple):
    """Logits with their labels."""

    logits: Tensor  # float64 [n, classes]
    labels: Tensor  # class indices, int64 [n]
    activation: sharmix.Activation  # with which the network was trained; softmax where only probabilities are public


def sources(settings: Settings) -> list[Task]:
    """The data set and the network of each source of logits in the settings: public probabilities, then networks."""
    public = [{"data_set": name, "network": PUBLIC} for name in settings["probability_sets"]]
    networks = settings["networks"].items()
    return public + [{"data_set": data_set, "network": network} for data_set, own in networks for network in own]


def seeds_of(source: Task, settings: Settings) -> list[int]:
    """The seeds of a source's runs; public probabilities have one."""
    return [0] if source["network"] == PUBLIC else settings["networks"][source["data_set"]][source["network"]]["seeds"]


def logits_of(source: Task, seed: int, settings: Settings, data: Path | None) -> LabelledLogits:
    """The logits of a source; for a network, of its run with this seed. Raises as the functions below."""
    if source["network"] == PUBLIC:
        return public_logits(source["data_set"], data)
    overrides = settings["networks"][source["data_set"]][source["network"]]["overrides"]
    found = network_logits(overrides, seed, data)
    if found.activation.entropy_parameters():
        raise ConfigurationError(f"{' '.join(overrides)}: the map has learned orders; name one with fixed orders")
    return found


def public_logits(name: str, data: Path | None) -> LabelledLogits:
    """The logits log p of public probabilities p. They differ from the true logits by a constant in each row.

    Args:
        name: a key of `probabilities.yaml`.
        data: folder of the data sets.

    Raises:
        DataError: a file is not there, or has another content.
    """
    files = read_yaml(PROBABILITIES)[name]
    p, labels = (np.load(BytesIO(read_public_file(data, files[part]))) for part in ("probabilities", "labels"))
    logits = torch.from_numpy(p.astype(np.float64)).log()
    return LabelledLogits(logits, torch.from_numpy(labels.astype(np.int64)), sharmix.Softmax())


def finite(logits: Tensor) -> Tensor:
    """The logits, with the smallest finite one in place of −∞, which is the logit of a probability of 0."""
    return logits.clamp_min(logits[logits.isfinite()].min())


def network_logits(overrides: Sequence[str], seed: int, data: Path | None) -> LabelledLogits:
    """The logits of a finished run for its test examples. They are computed once and kept in a file.

    Args:
        overrides: of run.py, as `studied_networks` gives them: [`experiment=airline`, `activation=entmax`].
        seed: of the run.
        data: folder of the data sets.

    Raises:
        ConfigurationError: there is no finished run.
        DataError: the data set cannot be loaded, or is not the data set of the run.
    """
    settings, folder = settings_of(*overrides), finished_folder(overrides, seed)
    file = KEPT / f"{load_record(folder / RECORD).weights_digest}.npz"
    content = kept(file, lambda: _computed(folder, data if "folder" in settings.data else None))
    with np.load(BytesIO(content)) as arrays:
        logits, labels = (torch.from_numpy(arrays[part]) for part in ("logits", "labels"))
    return LabelledLogits(logits, labels, build_activation(settings.activation))


def _computed(folder: Path, data: Path | None) -> bytes:
    """The logits and labels of a run's test split, as the content of an .npz file."""
    module, data_module = experiments.load_run(folder, data)
    with torch.inference_mode():
        batches = [(module(batch.inputs), batch.targets) for batch in data_module.test_dataloader()]
    logits, labels = (torch.cat(parts).numpy() for parts in zip(*batches, strict=True))
    content = BytesIO()
    np.savez(content, logits=logits.astype(np.float64), labels=labels)
    return content.getvalue()
