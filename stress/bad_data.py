"""Data sets that are damaged: refused with one message, or loaded with what is unreadable counted and another hash."""

import hashlib
import os
import random
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch

from experiments.data.airline import AirlineDataModule
from experiments.data.base import SplitDataModule
from experiments.data.cifar100 import Cifar100DataModule
from experiments.data.digits import DigitsDataModule
from experiments.data.imagenet import ImagenetDataModule
from experiments.data.parallel_corpus import ParallelCorpusDataModule
from stress.mutations import mutate, replace_kind
from stress.outcome import Outcome
from stress.processes import last_lines, perform
from stress.trials import Wrong, repeat
from tests.experiments.data.generated import (
    CIFAR_LABELS,
    ENGLISH,
    GERMAN,
    WNIDS,
    cifar_rows,
    encoded,
    lines,
    slope,
    tweets,
    write_cifar,
    write_pairs,
    write_tweets,
)

WHAT = "tweets, images, parallel text and inputs of predictions with bytes, lines or kinds of files changed"
CLASSES = 10  # of the images in folders
_GIVEN = {"seed": 0, "batch_size": 60, "evaluation_batch_size": 60, "expected_examples": None}
_SPLIT = {"test_fraction": 0.2, "split_seed": 21}
_IMAGES = {"images": "imagenet", "test_folder": "val", "image_size": 8, "least_area": 0.5, "shorter_side": 8}
_SENTENCES = {"name": "pairs", "source": "de", "target": "en", "train": "train", "dev": "val", "test": "test"}
MODULES: dict[str, Callable[..., SplitDataModule]] = {
    "airline": partial(AirlineDataModule, **_GIVEN, **_SPLIT, max_length=20, minimum_count=2),
    "cifar100": partial(Cifar100DataModule, **_GIVEN),
    "imagenet": partial(ImagenetDataModule, **_GIVEN, **_IMAGES, unreadable_share=0.2),
    "pairs": partial(ParallelCorpusDataModule, **_GIVEN, **_SENTENCES, hub="none", vocabulary_size=60, max_length=250),
    "digits": lambda folder: DigitsDataModule(**_GIVEN, **_SPLIT),
}
INPUTS = {"digits": b"0 8 16 4 " * 16 + b"\n", "airline": b"the late flight\nno\n", "pairs": b"ein Hund\n"}


def run(seconds: float, seed: int) -> Outcome:
    return repeat("bad_data", WHAT, lambda home: BadData(home).trial, seconds, seed)


class BadData:
    """The trials, with the data sets as they are before the damage."""

    def __init__(
        self, home: Path, prepare: Callable[[], None] | None = None, names: tuple[str, ...] = (*MODULES,)
    ) -> None:
        self.home, self.data, self.prepare = home, home / "data", prepare
        write_tweets(self.data, tweets())
        for split in ("train", "val", "test"):
            write_pairs(self.data, split, lines(GERMAN), lines(ENGLISH))
        for side in CIFAR_LABELS:
            write_cifar(self.data, side, cifar_rows(side))
        for side, wnid in ((side, wnid) for side in ("train", "val") for wnid in WNIDS[:CLASSES]):
            (self.data / "imagenet" / side / wnid).mkdir(parents=True)
            for number, kind in enumerate(("JPEG", "PNG")):
                file = self.data / "imagenet" / side / wnid / f"{wnid}_{number}.{kind}"
                file.write_bytes(encoded(slope(24 + number), kind))
        for name, content in INPUTS.items():
            (self.data / name).mkdir(exist_ok=True)
            (self.data / name / "input.txt").write_bytes(content)
        self.whole = {name: self._load(name, self.data) for name in names}
        for name, (status, printed) in self.whole.items():
            assert status == 0, (name, printed)

    def trial(self, draw: random.Random) -> None:
        name = draw.choice([*self.whole])
        place = self.home / uuid4().hex / "data"
        shutil.copytree(self.data / name, place / name, copy_function=os.link)
        damage = self._damage(draw, place / name)
        status, printed = self._load(name, place)
        if "Traceback" in printed or status not in (0, 1):
            raise RuntimeError(f"{name}, {damage}: status {status}, {last_lines(printed)!r}")
        if status and str(place) not in printed and damage.partition(":")[0] not in printed:
            raise RuntimeError(f"{name}, {damage}: names no file, {last_lines(printed)!r}")
        before, after = (_told(text) for text in (self.whole[name][1], printed))
        if not status and before["hash"] == after["hash"] and before["examples"] != after["examples"]:
            raise Wrong(f"{name}, {damage}: other examples have the same hash")
        shutil.rmtree(place.parent)

    def _damage(self, draw: random.Random, folder: Path) -> str:
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        file = draw.choice(files)
        if draw.random() < 0.2:
            return replace_kind(draw, file)
        return mutate(draw, file, draw.choice(files).read_bytes())

    def _load(self, name: str, folder: Path) -> tuple[int, str]:
        return perform(folder.parent, partial(load, name, folder), prepare=self.prepare)


def load(name: str, folder: Path) -> None:
    """Print the hash of a data set, and the digests of all its examples and of the inputs of a prediction."""
    from experiments.data import imagenet

    imagenet.CLASSES = CLASSES
    module = MODULES[name](folder=folder)
    module.setup()
    digest = hashlib.sha256()
    for split in ("train", "dev", "test"):
        if (examples := getattr(module.data, split, None)) is not None:
            count = len(examples.targets if name != "pairs" else examples.references)
            inputs, targets, unreadable = examples.read(torch.arange(count), torch.zeros(count, dtype=torch.int64))
            assert len(inputs) + len(unreadable) == count, f"{count - len(inputs)} missing, {len(unreadable)} counted"
            module.unreadable.add(unreadable)
            digest.update(repr((inputs.shape, unreadable)).encode() + inputs.numpy().tobytes())
            digest.update(targets.numpy().tobytes())
    print(f"hash: {module.data.content_hash}\nexamples: {digest.hexdigest()}")
    if (file := folder / name / "input.txt").exists() or file.is_symlink() or name in INPUTS:
        module.encode(file)


def _told(printed: str) -> dict[str, Any]:
    return {"hash": None, "examples": None} | dict(
        line.split(": ", 1) for line in printed.splitlines() if line.startswith(("hash: ", "examples: "))
    )
