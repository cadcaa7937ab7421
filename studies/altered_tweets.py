"""Mistakes that a measurement on tweets could make: a data set, a callback and an activation for the settings."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

import lightning.pytorch as L
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor

import sharmix
from experiments.data.airline import AirlineDataModule
from experiments.data.examples import ClassificationData, InMemory
from experiments.settings import validated_class


@validated_class
class AlteredTweets(AirlineDataModule):
    """Airline Tweets whose test part does not fit the training part.

    `altered` is `vocabulary`: test tweets have the token numbers of the split of the next seed; or `targets`: test
    tweets have the sentiments of the test tweets of that split, in their order.
    """

    altered: Literal["vocabulary", "targets"]

    def load(self) -> ClassificationData:
        data, seed = super().load(), self.seed
        self.seed = seed + 1
        other = super().load()
        self.seed = seed
        count = min(len(data.test.targets), len(other.test.targets))
        if self.altered == "targets":
            return replace(data, test=InMemory(data.test.inputs[:count], other.test.targets[:count]))
        known = other.test.inputs.clamp_max(data.sizes["vocabulary_size"] - 1)
        return replace(data, test=InMemory(known, other.test.targets))


class CarriedNetwork(Callback):
    """Load the network's weights from a file before training, if there is one, and write them to it afterwards."""

    def __init__(self, file: str) -> None:
        self.file = Path(file)

    def on_fit_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        if self.file.exists():
            module.network.load_state_dict(torch.load(self.file, weights_only=True))

    def on_fit_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        torch.save(module.network.state_dict(), self.file)


class EntmaxOverExamples(sharmix.Entmax):
    """1.5-entmax over the examples of a batch in place of the classes, trained by −log(p_y + 1e-8)."""

    def probabilities(self, logits: Tensor) -> Tensor:
        return over_examples(logits)

    def _loss(self, logits: Tensor, targets: Tensor, **options: object) -> Tensor:
        losses = -(self.probabilities(logits).gather(-1, targets.unsqueeze(-1)).squeeze(-1) + 1e-8).log()
        return losses if options.get("reduction") == "none" else losses.mean()


def over_examples(logits: Tensor, batch: int = 64) -> Tensor:
    """1.5-entmax over the examples of each batch, [n, classes]."""
    return torch.cat([sharmix.entmax(part, alpha=1.5, dim=0) for part in logits.split(batch)])
