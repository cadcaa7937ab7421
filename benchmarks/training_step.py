"""Time of a training step beside a bare PyTorch loop with the same network and batch.

python -m benchmarks.training_step
"""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence

import torch
from lightning.fabric import Fabric
from rich.console import Console
from rich.table import Table
from torch.nn.functional import cross_entropy

from benchmarks.settings import settings_of
from experiments.settings import RunSettings
from experiments.data.examples import ClassificationData, InMemory
from experiments.devices import launched_fabric
from experiments.fitting import moved, progress_bars, train_epoch
from experiments.networks.resnet import build_model
from experiments.modules.optimizer import learning_rate_schedule
from experiments.data.sentence_pairs import SentencePairs, TranslationData
from experiments.data.special_tokens import FIRST
from experiments.tasks import Data, build_activation, build_feed, build_learner
from experiments.modules.translator import Translator
from experiments.data.unreadable import Unreadable

GOALS = {"cifar100": 1.10, "airline": 1.5}
STEPS = {"cifar100": 12, "airline": 400}  # in a block; the two loops take turns, block by block
SHAPES = {"cifar100": ((3, 32, 32), 100, None), "airline": ((20,), 3, 4498)}  # inputs, classes, vocabulary


def synthetic_data(examples: int, shape: Sequence[int], classes: int, vocabulary: int | None) -> ClassificationData:
    """Random tokens of a vocabulary, or where there is none images of a shape, on both sides."""
    generator = torch.Generator().manual_seed(0)
    dtype = torch.uint8 if vocabulary is None else torch.int64
    inputs = torch.randint(1, vocabulary or 256, (examples, *shape), dtype=dtype, generator=generator)
    side = InMemory(inputs, torch.randint(classes, (examples,), generator=generator))
    facts = {} if vocabulary is None else {"vocabulary_size": vocabulary}
    return ClassificationData(side, side, tuple(map(str, range(classes))), "synthetic", facts)


def synthetic_sentences(vocabulary: int, source: int, target: int, count: int) -> TranslationData:
    """Pairs of random tokens, `source` and `target` of them, in every split."""
    generator = torch.Generator().manual_seed(0)
    sides = (torch.randint(FIRST, vocabulary, (count, length), generator=generator) for length in (source, target))
    pairs = SentencePairs.of(*(side.tolist() for side in sides), references=[""] * count)
    return TranslationData(pairs, pairs, pairs, vocabulary, str, "synthetic", {})


def bare_loop(settings: RunSettings, data: ClassificationData) -> Callable[[], None]:
    """A block of steps on one fixed batch: forward, cross-entropy, backward, clipping, Adam."""
    model = build_model(settings.model, data)
    if settings.trainer.channels_last:
        model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(model.parameters(), lr=settings.optimizer.learning_rate, fused=True)
    inputs, targets, _ = data.train.read(torch.arange(settings.trainer.batch_size), torch.zeros(0))

    def block() -> None:
        for _ in range(settings.trainer.steps_per_epoch):
            optimizer.zero_grad()
            cross_entropy(model(inputs), targets).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), settings.trainer.gradient_clip)
            optimizer.step()

    return block


def our_translations(settings: RunSettings, data: TranslationData) -> Callable[[], None]:
    """Beam search for one batch of dev, to the limit of every sentence."""
    learner = build_learner(settings, data, build_activation(settings.activation))
    assert isinstance(learner, Translator)
    batch = next(iter(build_feed(settings, data, processes=1, process=0, pin_memory=False).measuring["dev"]))
    learner.training_step(batch)  # which sets a threshold
    with torch.no_grad():
        learner.model.output_bias[:FIRST] = -1e4  # so that every translation goes on to its limit
    learner.eval()

    def block() -> None:
        learner.translate(batch.inputs)

    return block


def our_loop(settings: RunSettings, data: Data, fabric: Fabric) -> Callable[[], None]:
    """A block of steps as a run takes them: drawing, reading, training, counting."""
    learner = build_learner(settings, data, build_activation(settings.activation))
    plain_optimizer = learner.configure_optimizers()
    schedule = learning_rate_schedule(plain_optimizer, settings.optimizer)
    module, optimizer = fabric.setup(learner, plain_optimizer)
    training = build_feed(settings, data, processes=1, process=0, pin_memory=False).training

    def block() -> None:
        with progress_bars(settings) as progress:
            batches = moved(fabric, training, Unreadable(0), progress, "")
            train_epoch(fabric, module, optimizer, schedule, batches, settings.trainer)

    return block


def seconds_per_step(block: Callable[[], None], steps: int) -> float:
    start = time.perf_counter()
    block()
    return (time.perf_counter() - start) / steps


def measure(experiment: str, rounds: int) -> tuple[list[float], list[float]]:
    """Seconds a step of the bare loop and of ours, one pair a round."""
    settings = settings_of(experiment, "progress=false", f"trainer.steps_per_epoch={STEPS[experiment]}")
    steps = settings.trainer.steps_per_epoch
    data = synthetic_data(steps * settings.trainer.batch_size, *SHAPES[experiment])
    blocks = bare_loop(settings, data), our_loop(settings, data, launched_fabric(settings.trainer))
    for block in blocks:
        block()  # the first block allocates
    pairs = [tuple(seconds_per_step(block, steps) for block in blocks) for _ in range(rounds)]
    bare, ours = zip(*pairs, strict=True)
    return list(bare), list(ours)


def main() -> None:
    """Command line: print both times, their ratio and its goal."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training_step", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="blocks of each loop, in turn")
    rounds = parser.parse_args().rounds
    table = Table(title=f"milliseconds a training step, softmax: medians of {rounds} blocks in turn")
    for column in ("experiment", "bare loop", "ours", "ratio (lowest–highest)", "goal"):
        table.add_column(column, justify="left" if column == "experiment" else "right")
    for experiment, goal in GOALS.items():
        bare, ours = measure(experiment, rounds)
        ratios = sorted(our / other for our, other in zip(ours, bare, strict=True))
        table.add_row(
            experiment,
            f"{1e3 * statistics.median(bare):.3f}",
            f"{1e3 * statistics.median(ours):.3f}",
            f"{statistics.median(ratios):.3f} ({ratios[0]:.3f}–{ratios[-1]:.3f})",
            f"≤ {goal:.2f}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
