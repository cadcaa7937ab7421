"""Small data sets in the files of the real ones."""

import csv
import functools
import io
from pathlib import Path

import numpy as np
import pyarrow
from datasets import ClassLabel, Dataset, Features
from datasets import Image as ImageFeature
from PIL import Image
from pyarrow import parquet

# Airline Tweets

HEADER = ["tweet_id", "airline_sentiment", "name", "text"]
SENTIMENTS = ["negative", "neutral", "positive"]
Records = list[list[str]]


def letters(number: int) -> str:
    """A word of its own for each number."""
    return "zq" + "abcdefghij"[number // 10] + "abcdefghij"[number % 10]


def tweets() -> Records:
    """Sixty tweets: two share an id, three a text, one of these with one of those."""
    made = [[str(100 + i), SENTIMENTS[i % 3], "someone", f"the late flight {letters(i)}"] for i in range(60)]
    made[3][0] = made[0][0]
    made[6][3] = made[9][3] = made[3][3]
    made[30][3] = 'Two "quoted" lines,\nof one tweet &amp; more'
    return made


def write_tweets(folder: Path, rows: Records) -> Path:
    path = folder / "airline" / "Tweets.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([HEADER, *rows])
    return path


# Images


def encoded(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def slope(width: int = 24, height: int = 16) -> Image.Image:
    """A slope of colours, the same from left to right as from top to bottom."""
    pixels = np.indices((height, width)).sum(axis=0)[..., None] * np.array([5, 3, 1])
    return Image.fromarray(pixels.astype(np.uint8))


# CIFAR-100, with 500 training and 200 test images

CIFAR_PIXELS = np.random.default_rng(0).integers(0, 256, (500, 32, 32, 3), dtype=np.uint8)
CIFAR_LABELS = {"train": np.arange(500) % 100, "test": np.arange(200) % 100}


@functools.cache
def cifar_rows(side: str) -> list[dict]:
    return [
        {
            "img": {"bytes": encoded(Image.fromarray(CIFAR_PIXELS[i])), "path": None},
            "fine_label": int(label),
            "coarse_label": 0,
        }
        for i, label in enumerate(CIFAR_LABELS[side])
    ]


def write_cifar(folder: Path, side: str, rows: list[dict]) -> Path:
    (folder / "cifar100").mkdir(parents=True, exist_ok=True)
    file = folder / "cifar100" / f"{side}.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    return file


# Tiny ImageNet, with three training images and one test image a class; some are grey

TINY_WNIDS = [f"n{7 * number:08d}" for number in range(200)]


@functools.cache
def tiny_rows(side: str) -> list[dict]:
    made = []
    for number in range(600 if side == "train" else 200):
        label, colour = (number // 3, (number % 256, 7, 9)) if side == "train" else (number * 3 % 200, (1, number, 9))
        image = Image.new("RGB", (64, 64), colour)
        content = encoded(image.convert("L") if number % 50 == 0 else image)
        made.append({"image": {"bytes": content, "path": None}, "label": label})
    return made


def tiny_table(rows: list[dict], names: list[str]) -> Dataset:
    return Dataset.from_list(rows, features=Features(image=ImageFeature(), label=ClassLabel(names=names)))


def write_tiny(folder: Path, side: str, rows: list[dict], names: list[str] = TINY_WNIDS) -> None:
    file = folder / "tiny_imagenet" / f"{side}.parquet"
    file.parent.mkdir(exist_ok=True)
    parquet.write_table(tiny_table(rows, names).data.table, file)


def write_tiny_archive(folder: Path) -> Path:
    archive = folder / "tiny-imagenet-200"
    for number, row in enumerate(tiny_rows("train")):
        wnid = TINY_WNIDS[row["label"]]
        file = archive / "train" / wnid / "images" / f"{wnid}_{number % 3 + 9}.JPEG"  # 9 comes before 10, not behind 11
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(row["image"]["bytes"])
    (archive / "val" / "images").mkdir(parents=True)
    lines = []
    for number, row in enumerate(tiny_rows("valid")):
        (archive / "val" / "images" / f"val_{number}.JPEG").write_bytes(row["image"]["bytes"])
        lines.append(f"val_{number}.JPEG\t{TINY_WNIDS[row['label']]}\t0\t0\t63\t63\n")
    (archive / "val" / "val_annotations.txt").write_text("".join(reversed(lines)))
    return archive


# ImageNet, with a few classes of an image or a few

WNIDS = [f"n{number:08d}" for number in range(1000)]


def write_photos(home: Path) -> None:
    """One image a class on each side, and two more in the last class; each image of a side is another."""
    for side, more in (("train", 2), ("val", 0)):
        for number, wnid in enumerate(WNIDS[:3]):
            (home / "photos" / side / wnid).mkdir(parents=True)
            for image in range(1 + more * (number == 2)):
                file = home / "photos" / side / wnid / f"{wnid}_{image}.JPEG"
                file.write_bytes(encoded(slope(24 + number + 5 * image), "JPEG"))


# Parallel text

GERMAN = ["ein Hund läuft", "zwei Hunde laufen schnell", "eine Frau liest ein Buch", "ein Mann schläft"] * 5
ENGLISH = ["a dog runs", "two dogs run fast", "a woman reads a book", "a man sleeps"] * 5


def write_pairs(folder: Path, split: str, german: list[str], english: list[str]) -> None:
    (folder / "pairs").mkdir(exist_ok=True)
    for language, sentences in (("de", german), ("en", english)):
        text = "".join(f"{sentence}\n" for sentence in sentences)
        (folder / "pairs" / f"{split}.{language}").write_text(text, "utf-8", newline="\n")
