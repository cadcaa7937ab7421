"""Attention trained on short sequences and tested on long ones.

There is one training for each problem, map and seed. The map turns attention scores into weights. Each map is trained
with and without a factor of the scores that grows with the logarithm of the number of keys.
"""

import logging
import warnings
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import lightning.pytorch as L
import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

import sharmix
from studies.comparison import compare
from studies.decoder import Decoder
from studies.sequences import UNASKED, Batches, DrawSequences, Sequences, copying, recall
from studies.study import Finding, Report, Row, Settings, Task

PROBLEMS = {"copy": copying, "recall": recall}
METRICS = ("accuracy", "exact match")

logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)  # its notes on devices are not about the study


class Answering(L.LightningModule):
    """Trains a decoder on the answers by cross-entropy, and measures both accuracies on each test loader.

    Args:
        decoder: the decoder to train.
        training: the settings of the training, with the learning rate and its schedule.
        lengths: of the sequences of each test loader, which its metrics are named by.
    """

    def __init__(self, decoder: Decoder, training: Settings, lengths: list[int]) -> None:
        super().__init__()
        self.decoder, self.training_settings, self.lengths = decoder, training, lengths

    def training_step(self, batch: Sequences, batch_idx: int) -> Tensor:
        tokens, targets = batch
        asked = targets != UNASKED
        return cross_entropy(self.decoder.logits(self.decoder(tokens)[asked]), targets[asked])

    def test_step(self, batch: Sequences, batch_idx: int, dataloader_idx: int = 0) -> None:
        tokens, targets = batch
        right, asked = self.decoder.logits(self.decoder(tokens)).argmax(-1) == targets, targets != UNASKED
        for metric, values in zip(METRICS, (right[asked], (right | ~asked).all(1)), strict=True):
            name = _logged(metric, self.lengths[dataloader_idx])
            self.log(name, values.double().mean(), batch_size=len(tokens), add_dataloader_idx=False)

    def configure_optimizers(self) -> dict[str, Any]:
        rate, beta2, warm_up = (self.training_settings[name] for name in ("learning_rate", "beta2", "warm_up"))
        optimizer = torch.optim.Adam(self.parameters(), rate, betas=(0.9, beta2))
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, rate, self.trainer.estimated_stepping_batches, pct_start=warm_up, cycle_momentum=False
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def _logged(metric: str, length: int) -> str:
    return f"{metric} at {length}"


def tasks(settings: Settings, data: Path | None) -> list[Task]:
    """One training for each seed, problem and contender, seed by seed."""
    every = product(settings["seeds"], settings["problems"], settings["contenders"])
    return [{"problem": problem, "contender": contender, "seed": seed} for seed, problem, contender in every]


def measure(task: Task, settings: Settings, data: Path | None) -> list[Row]:
    """Train a decoder, and measure it on sequences of each length. All contenders and seeds get the same sequences."""
    for advice in (".*treespec", ".*does not have many workers"):  # about Lightning's own code, and about large data
        warnings.filterwarnings("ignore", message=advice)
    training, test = settings["training"], settings["test"]
    draw = PROBLEMS[task["problem"]](**settings["problems"][task["problem"]])
    torch.manual_seed(task["seed"])
    module = Answering(_decoder(task, settings), training, test["lengths"])
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=1,
        gradient_clip_val=training["clip"],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    batches = Batches(draw, training["lengths"], training["examples"], training["steps"], task["seed"])
    trainer.fit(module, DataLoader(batches, batch_size=None))
    loaders = [DataLoader(_test_batches(draw, length, test), batch_size=None) for length in test["lengths"]]
    trainer.test(module, loaders, verbose=False)
    return [
        {"metric": metric, "length": length, "value": trainer.callback_metrics[_logged(metric, length)].item()}
        for metric, length in product(METRICS, test["lengths"])
    ]


def _decoder(task: Task, settings: Settings) -> Decoder:
    contender = settings["contenders"][task["contender"]]
    return Decoder(
        vocabulary_size=1 + sum(settings["problems"][task["problem"]].values()),  # one more for the filler
        activation=sharmix.build_activation(**contender["activation"]),
        same_scale_at=max(settings["training"]["lengths"]) if contender["log_length"] else None,
        **settings["network"],
    )


def _test_batches(draw: DrawSequences, length: int, test: Settings) -> Batches:
    return Batches(draw, [length], test["examples"], test["tokens"] // (test["examples"] * length), test["seed"])


def report(records: pd.DataFrame, settings: Settings, shown: Settings) -> Report:
    """Both accuracies by length, differences to the opponents paired by seed, and findings at the longest length."""

    def mean(rows: pd.DataFrame, contender: str, metric: str) -> str:
        values = rows[(rows["contender"] == contender) & (rows["metric"] == metric)]["value"]
        return f"{values.mean():.3f} [{values.min():.3f}, {values.max():.3f}]"

    def difference(rows: pd.DataFrame, contender: str, opponent: str) -> str:
        same = contender == opponent
        return "–" if same else str(compare(rows, "accuracy", contender, opponent, "seed", shown["confidence"]))

    tables = {}
    for problem, rows in records.groupby("problem", sort=False):
        for metric in METRICS:
            tables[f"{problem}: {metric} by length"] = _by_length(rows, mean, metric)
        for opponent in shown["opponents"]:
            tables[f"{problem}: accuracy less that of {opponent}"] = _by_length(rows, difference, opponent)
    return Report(tables, _findings(records, settings, shown), [_note(settings)])


def _by_length(records: pd.DataFrame, cell: Callable[[pd.DataFrame, str, str], str], *given: str) -> pd.DataFrame:
    """A row for each contender and a column for each length. `cell` gets the records of a length and a contender."""
    lengths = list(records.groupby("length"))
    return pd.DataFrame(
        {"contender": contender} | {str(length): cell(rows, contender, *given) for length, rows in lengths}
        for contender in records["contender"].unique()
    )


def _findings(records: pd.DataFrame, settings: Settings, shown: Settings) -> list[Finding]:
    longest, trained = records["length"].max(), max(settings["training"]["lengths"])
    found = []
    for (problem, rows), (contender, opponent) in product(
        records[records["length"] == longest].groupby("problem", sort=False), shown["found"]
    ):
        compared = compare(rows, "accuracy", contender, opponent, "seed", shown["confidence"])
        use = f"attention trained on up to {trained} tokens, {problem}: accuracy at {longest}"
        found.append(Finding(use, contender, opponent, compared.verdict("higher"), str(compared), 1, compared.units))
    return found


def _note(settings: Settings) -> str:
    lowest, highest = (ends(settings["training"]["lengths"]) for ends in (min, max))
    return (
        f"Every decoder is trained on sequences of {lowest} to {highest} tokens. Means over {len(settings['seeds'])} "
        "seeds, in brackets the least and the largest; beside differences, which are paired by seed, Student's t "
        "interval over seeds. “Accuracy” is the share of the tokens asked for that are right, “exact match” the share "
        "of sequences without a wrong one."
    )
