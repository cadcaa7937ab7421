"""Attention trained on short sequences and tested on long ones.

There is one training for each problem, map and seed. The map turns attention scores into weights. Each map is trained
with and without a factor of the scores that grows with the logarithm of the number of keys.
"""

from collections.abc import Iterable
from functools import partial
from itertools import product
from pathlib import Path

import pandas as pd
import torch
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_
from torch.optim.lr_scheduler import OneCycleLR

import sharmix
from studies.comparison import compare
from studies.decoder import Decoder
from studies.sequences import UNASKED, Sequences, copying, drawn_batches, recall
from studies.study import Finding, Report, Row, Settings, Task

PROBLEMS = {"copy": copying, "recall": recall}
METRICS = ("accuracy", "exact match")


def tasks(settings: Settings, data: Path | None) -> list[Task]:
    """One training for each seed, problem and contender, seed by seed."""
    every = product(settings["seeds"], settings["problems"], settings["contenders"])
    return [{"problem": problem, "contender": contender, "seed": seed} for seed, problem, contender in every]


def measure(task: Task, settings: Settings, data: Path | None) -> list[Row]:
    """Train a decoder, and measure it on sequences of each length. All contenders and seeds get the same sequences."""
    training, test = settings["training"], settings["test"]
    sizes, contender = settings["problems"][task["problem"]], settings["contenders"][task["contender"]]
    draw = partial(PROBLEMS[task["problem"]], **sizes)
    torch.manual_seed(task["seed"])
    decoder = Decoder(
        vocabulary_size=1 + sum(sizes.values()),  # one more for the filler
        activation=sharmix.build_activation(**contender["activation"]),
        same_scale_at=max(training["lengths"]) if contender["log_length"] else None,
        **settings["network"],
    )
    batches = drawn_batches(draw, training["lengths"], training["examples"], training["steps"], task["seed"])
    train(decoder, batches, training)
    found = {}
    for length in test["lengths"]:
        number = test["tokens"] // (test["examples"] * length)
        found[length] = accuracies(decoder, drawn_batches(draw, [length], test["examples"], number, test["seed"]))
    return [{"metric": name, "length": of, "value": found[of][name]} for name, of in product(METRICS, found)]


def train(decoder: Decoder, batches: Iterable[Sequences], training: Settings) -> None:
    """Train a decoder on the answers by cross-entropy."""
    rate = training["learning_rate"]
    optimizer = torch.optim.Adam(decoder.parameters(), rate, betas=(0.9, training["beta2"]))
    schedule = OneCycleLR(optimizer, rate, training["steps"], pct_start=training["warm_up"], cycle_momentum=False)
    for tokens, targets in batches:
        asked = targets != UNASKED
        loss = cross_entropy(decoder.output(decoder(tokens)[asked]), targets[asked])
        optimizer.zero_grad()
        loss.backward()
        clip_grad_norm_(decoder.parameters(), training["clip"])
        optimizer.step()
        schedule.step()


@torch.inference_mode()
def accuracies(decoder: Decoder, batches: Iterable[Sequences]) -> dict[str, float]:
    """The share of the tokens asked for that are right, and the share of sequences without a wrong one."""
    right, asked = [], []
    for tokens, targets in batches:
        right.append(decoder.output(decoder(tokens)).argmax(-1) == targets)
        asked.append(targets != UNASKED)
    right, asked = torch.cat(right), torch.cat(asked)
    shares = right[asked], (right | ~asked).all(1)
    return {name: values.double().mean().item() for name, values in zip(METRICS, shares, strict=True)}


def report(records: pd.DataFrame, settings: Settings, shown: Settings) -> Report:
    """Both accuracies by length, differences to the opponents paired by seed, and findings at the longest length."""
    longest, lengths = max(settings["test"]["lengths"]), settings["training"]["lengths"]
    tables, findings = {}, []
    for problem, rows in records.groupby("problem", sort=False):
        for metric, own in rows.groupby("metric", sort=False):
            table = own.pivot_table("value", "contender", "length", _spread, sort=False)
            tables[f"{problem}: {metric} by length"] = table.rename(columns=str).reset_index()
        for opponent in shown["opponents"]:
            tables[f"{problem}: accuracy less that of {opponent}"] = _differences(rows, opponent)
        for contender, opponent in shown["found"]:
            found = compare(rows[rows["length"] == longest], "accuracy", contender, opponent, "seed")
            use = f"attention trained on up to {max(lengths)} tokens, {problem}: accuracy at {longest}"
            findings.append(Finding(use, contender, opponent, found.verdict("higher"), str(found), 1, found.units))
    numbers = {"shortest": min(lengths), "longest": max(lengths), "seeds": len(settings["seeds"])}
    return Report(tables, findings, [note.format(**numbers) for note in shown["notes"]])


def _spread(values: pd.Series) -> str:
    return f"{values.mean():.3f} [{values.min():.3f}, {values.max():.3f}]"


def _differences(records: pd.DataFrame, opponent: str) -> pd.DataFrame:
    """The accuracy of each contender less that of its opponent, by length."""
    table = pd.DataFrame({"contender": records["contender"].unique()})
    for length, rows in records.groupby("length"):
        changes = [
            "–" if one == opponent else str(compare(rows, "accuracy", one, opponent, "seed"))
            for one in table["contender"]
        ]
        table[str(length)] = changes
    return table
