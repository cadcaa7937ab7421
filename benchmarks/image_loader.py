"""How fast photographs are read: ours beside a bare loop of Pillow and the same transform, here and in a worker.

python -m benchmarks.image_loader --data ../shared/data
"""

import argparse
import statistics
import sys
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import torch
from PIL import Image
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor
from torch.utils.data import DataLoader
from torchvision.transforms.v2.functional import pil_to_tensor

from benchmarks.settings import settings_of
from experiments.data.base import BatchReader
from experiments.data.examples import Batch, BatchIndices, Examples
from experiments.data.photographs import ImageFiles, Photographs, Transform
from experiments.data.randomness import sample_seeds
from experiments.errors import UserError
from experiments.settings import build

SEED = 0
BATCH_SIZE = 50
GOAL = 0.9  # share of the bare loop's speed
BARE_LOOP = "bare loop"
Measured = dict[tuple[str, str], list[float]]


@dataclass(frozen=True)
class BareLoop:
    """Examples as one would write them down first: no image has a seed of its own, and none may be broken."""

    images: ImageFiles
    targets: Tensor
    transform: Transform

    def read(self, indices: Tensor, seeds: Tensor) -> tuple[Tensor, Tensor, list[str]]:
        files = [Path(self.images.place, self.images.name(index)) for index in indices.tolist()]
        pixels = [self.transform(pil_to_tensor(Image.open(file).convert("RGB"))) for file in files]
        return torch.stack(pixels), self.targets[indices], []


def measure(sides: dict[str, Photographs], count: int, repetitions: int) -> Measured:
    """Images per second of each side and way of reading, a number a repetition; the ways take turns.

    Args:
        sides: the photographs to read, by the name of their side.
        count: images a pass, spread over all.
        repetitions: passes that count, after one that does not.
    """
    ways: dict[tuple[str, str], Collection[Batch]] = {}
    for side, ours in sides.items():
        size = len(ours.targets)
        chosen = torch.from_numpy(np.linspace(0, size - 1, min(count, size), dtype=np.int64))
        batches = [BatchIndices(indices, sample_seeds(SEED, 0, indices), 1.0) for indices in chosen.split(BATCH_SIZE)]
        readers: dict[str, Examples] = {BARE_LOOP: BareLoop(ours.images, ours.targets, ours.transform), "ours": ours}
        for place, workers in (("", 0), (", 1 worker", 1)):
            for reader, examples in readers.items():
                ways[side, f"{reader}{place}"] = DataLoader(
                    BatchReader(examples, None),
                    sampler=batches,
                    batch_size=None,
                    num_workers=workers,
                    persistent_workers=workers > 0,
                )
    measured: Measured = {way: [] for way in ways}
    for repetition in track(range(repetitions + 1), "reading", transient=True):
        for way, batches in ways.items():
            speed = _images_per_second(batches)
            if repetition:
                measured[way].append(speed)
    return measured


def show(measured: Measured, console: Console) -> None:
    """Print medians, and each way's speed as a share of the bare loop's."""
    table = Table("transform", "way", "images / s / core", "of the bare loop", title="Reading photographs")
    medians = {way: statistics.median(speeds) for way, speeds in measured.items()}
    for (side, way), speed in medians.items():
        share = speed / medians[side, BARE_LOOP]
        table.add_row(side, way, f"{speed:.0f}", f"[{'green' if share >= GOAL else 'red'}]{share:.2f}")
    console.print(table)


def main() -> None:
    """Command line: print the speeds, and the memory before and after."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder that holds the data sets")
    parser.add_argument("--folder", default="imagenet_sample", help="of the photographs, below it")
    parser.add_argument("--test-folder", default="train", help="of the test side, below that")
    parser.add_argument("--images", type=int, default=500, help="a pass")
    parser.add_argument("--repetitions", type=int, default=5, help="passes of which the median is shown")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    folders = f"data.images={arguments.folder}", f"data.test_folder={arguments.test_folder}"
    settings = settings_of("imagenet_balanced", *folders, "data.expected_examples=null", f"paths.data={arguments.data}")
    try:
        data = build(settings.data, "data").load()
    except UserError as error:
        sys.exit(f"error: {error}")
    before = _memory_mib()
    measured = measure({"training": data.train, "measuring": data.test}, arguments.images, arguments.repetitions)
    console = Console()
    show(measured, console)
    console.print("Seconds are the processor's, of this process and its worker together.")
    console.print(f"Memory of this process: {before:.0f} MiB before all passes, {_memory_mib():.0f} MiB after.")


def _images_per_second(batches: Collection[Batch]) -> float:
    """Images over seconds of one processor core, this process's and its workers' together."""
    since = _processor_seconds()
    count = sum(len(batch.targets) for batch in batches)
    return count / (_processor_seconds() - since)


def _processor_seconds() -> float:
    times = [process.cpu_times() for process in psutil.Process().children()]
    return time.process_time() + sum(spent.user + spent.system for spent in times)


def _memory_mib() -> float:
    return psutil.Process().memory_info().rss / 2**20


if __name__ == "__main__":
    main()
