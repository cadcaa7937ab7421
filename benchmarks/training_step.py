"""Time of a training step beside a bare PyTorch loop with the same network and batch.

python -m benchmarks.training_step
"""

import argparse
import math
import statistics
import threading
import time
from pathlib import Path

import lightning.pytorch as L
import torch
from lightning.pytorch.callbacks import Callback
from torch.nn.functional import cross_entropy

from benchmarks.harness import Step, in_turn, ratios, with_range
from benchmarks.random_data import on_random_data
from experiments.callbacks.checkpoints import PeriodicCheckpoint
from experiments.composition import settings_of
from experiments.data.base import SplitDataModule
from experiments.data.special_tokens import FIRST
from experiments.modules.translator import Translator
from experiments.run import Run
from experiments.settings import RunSettings
from experiments.trainer import build_trainer

GOALS = {"cifar100": 1.05, "airline": 1.5}
STEPS = {"cifar100": 12, "airline": 400}  # in a block; the two loops take turns, block by block


def bare_loop(settings: RunSettings, steps: int) -> Step:
    """A block of steps on one fixed batch: forward, cross-entropy, backward, clipping, Adam."""
    module, data = Run(settings, Path()).build()
    network = module.network
    optimizer = torch.optim.Adam(network.parameters(), lr=settings.optimizer["learning_rate"], fused=True)
    inputs, targets, _ = data.data.train.read(torch.arange(settings.data["batch_size"]), torch.zeros(0))

    def block() -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            cross_entropy(network(inputs), targets).backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), settings.trainer["gradient_clip_val"])
            optimizer.step()

    return block


def our_translations(module: L.LightningModule, data: SplitDataModule) -> Step:
    """Beam search for one batch of dev, to the limit of every sentence."""
    assert isinstance(module, Translator)
    batch = next(iter(data.val_dataloader()[0]))
    module.training_step(batch, 0)  # the first training step sets the threshold of α-ReLU
    with torch.no_grad():
        module.network.output_bias[:FIRST] = -1e4  # so that every translation goes on to its limit
    module.eval()

    def block() -> None:
        module.translate(batch.inputs)

    return block


class _Turns(Callback):
    """Lets each training epoch wait until it is its turn."""

    def __init__(self) -> None:
        self.begin, self.ended = threading.Event(), threading.Event()

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        while not self.begin.wait(timeout=0.5):
            if not threading.main_thread().is_alive():
                raise SystemExit  # ends this thread alone
        self.begin.clear()

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.ended.set()

    def block(self) -> None:
        self.ended.clear()
        self.begin.set()
        self.ended.wait()


def our_loop(settings: RunSettings, module: L.LightningModule, data: SplitDataModule, steps: int) -> Step:
    """A block of steps as a run takes them: an epoch of Trainer.fit, which goes on in a thread from turn to turn."""
    options = {"max_epochs": -1, "limit_train_batches": steps, "enable_progress_bar": False}
    turns, checkpoint = _Turns(), PeriodicCheckpoint(Path("never.ckpt"), math.inf)
    trainer = build_trainer(settings.trainer | options, settings.threads, callbacks=[turns, checkpoint], logger=False)
    trainer.limit_val_batches = 0  # nothing is measured between blocks
    threading.Thread(target=trainer.fit, args=(module, data)).start()
    return turns.block


def seconds_per_step(block: Step, steps: int) -> float:
    start = time.perf_counter()
    block()
    return (time.perf_counter() - start) / steps


def measure(experiment: str, rounds: int) -> tuple[list[float], list[float]]:
    """Seconds a step of the bare loop and of ours, one pair a round."""
    steps = STEPS[experiment]
    settings = on_random_data(settings_of(f"experiment={experiment}"), experiment, steps)
    blocks = our_loop(settings, *Run(settings, Path()).build(), steps), bare_loop(settings, steps)
    for block in blocks:
        block()  # the first block allocates
    ours, bare = in_turn(lambda block: seconds_per_step(block, steps), dict.fromkeys(blocks, rounds)).values()
    return bare, ours


def main() -> None:
    """Command line: print both times, their ratio and its goal."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training_step", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="blocks of each loop, in turn")
    rounds = parser.parse_args().rounds
    print(f"Milliseconds a training step, softmax: medians of {rounds} blocks in turn")
    for experiment, goal in GOALS.items():
        bare, ours = measure(experiment, rounds)
        relative = ratios(ours, bare)
        ratio = with_range(statistics.median(relative), min(relative), max(relative), decimals=3)
        ours_ms, bare_ms = (1e3 * statistics.median(times) for times in (ours, bare))
        print(f"{experiment}: {ours_ms:.3f}, bare loop {bare_ms:.3f}; ratio {ratio}, goal ≤ {goal:.2f}")


if __name__ == "__main__":
    main()
