"""Damaged and strange files: each is one error, or counted as unreadable, and none stops the process or hangs it."""

import contextlib
import os
import signal
import socket
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
import torch
from PIL import Image
from pyarrow import parquet

from experiments import files
from experiments.data import digits
from experiments.data.airline import AirlineDataModule
from experiments.data.base import SplitDataModule
from experiments.data.cifar100 import Cifar100DataModule
from experiments.data.digits import DigitsDataModule
from experiments.data.imagenet import ImagenetDataModule
from experiments.data.parallel_corpus import ParallelCorpusDataModule
from experiments.data.photographs import ImageFiles, Photographs, decoded, measuring_transform
from experiments.data.torch_datasets import TorchDatasetModule, class_numbers
from experiments.errors import DataError, UserError
from tests.experiments.data.generated import (
    ENGLISH,
    GERMAN,
    cifar_rows,
    encoded,
    lines,
    slope,
    tweets,
    write_cifar,
    write_pairs,
    write_tweets,
)
from tests.experiments.data.support import BATCHES, trainer
from tests.experiments.data.test_imagenet import COUNTS, write_counts
from tests.experiments.data.test_imagenet import SETTINGS as PHOTOGRAPHS
from tests.experiments.data.test_parallel_corpus import SETTINGS as CORPUS

SPLIT = {"test_fraction": 0.2, "split_seed": 21}
TWEETS = {"max_length": 6, "minimum_count": 1, "expected_examples": {"all": 60}, **SPLIT}
FEW = {"train": 20, "test": 10}
Make = Callable[[Path], SplitDataModule]


@pytest.fixture(autouse=True)
def _in_seconds() -> Iterator[None]:
    """A test that hangs fails."""

    def give_up(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(100)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def of_tweets(folder: Path) -> SplitDataModule:
    return AirlineDataModule(folder=folder, **TWEETS, **BATCHES)


def of_cifar(folder: Path) -> SplitDataModule:
    return Cifar100DataModule(folder=folder, **BATCHES)


def of_few_images(folder: Path) -> SplitDataModule:
    return Cifar100DataModule(folder=folder, **BATCHES)


def of_pairs(folder: Path) -> SplitDataModule:
    expected = {"train": 20, "dev": 20, "test": 20}
    return ParallelCorpusDataModule(folder=folder, expected_examples=expected, **CORPUS | BATCHES)


def of_photographs(folder: Path, **changes: Any) -> ImagenetDataModule:
    data = ImagenetDataModule(folder=folder, **PHOTOGRAPHS | BATCHES | changes)
    data.trainer = trainer(training=False)
    return data


def refusal(data: SplitDataModule) -> str:
    with pytest.raises(DataError) as caught:
        data.setup()
    return str(caught.value)


@pytest.fixture
def few_images(tmp_path: Path) -> Path:
    """The first images of the small CIFAR-100."""
    for side, count in FEW.items():
        write_cifar(tmp_path, side, cifar_rows(side)[:count])
    return tmp_path


@pytest.fixture
def few_photographs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two classes in place of a thousand, of three images on each side."""
    monkeypatch.setattr("experiments.data.imagenet.CLASSES", 2)
    for side in ("train", "val"):
        for number in range(2):
            for image in range(3):
                file = tmp_path / "photos" / side / f"n0000000{number}" / f"{image}.JPEG"
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(encoded(slope(20 + number), "JPEG"))
    return tmp_path


# What is no file


def no_files(place: Path) -> Iterator[str]:
    """Puts one thing after the other in place of a file, and names it."""
    for kind, make in {
        "a named pipe": os.mkfifo,
        "a folder": os.mkdir,
        "a device": lambda place: place.symlink_to("/dev/zero"),
        "a socket": listen,
    }.items():
        place.unlink(missing_ok=True)
        make(place)
        yield kind
        if place.is_dir():
            place.rmdir()
    place.unlink(missing_ok=True)


def listen(place: Path) -> None:
    with contextlib.chdir(place.parent), socket.socket(socket.AF_UNIX) as opened:  # which takes short names alone
        opened.bind(place.name)


FILES: dict[str, tuple[str, Make, str]] = {
    "tweets": ("tweets_folder", of_tweets, "airline/Tweets.csv"),
    "cifar": ("few_images", of_cifar, "cifar100/test.parquet"),
    "pairs": ("pairs_folder", of_pairs, "pairs/val.en"),
}


@pytest.mark.parametrize(("fixture", "make", "file"), FILES.values(), ids=FILES)
def test_what_is_no_file_is_refused_at_once(
    fixture: str, make: Make, file: str, request: pytest.FixtureRequest
) -> None:
    folder = request.getfixturevalue(fixture)
    for kind in no_files(folder / file):
        assert f"{folder / file}: cannot be read (" in (said := refusal(make(folder))), kind
        assert kind in said


def test_no_file_in_place_of_the_digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digits, "FILE", tmp_path / "digits.csv.gz")
    for kind in no_files(tmp_path / "digits.csv.gz"):
        assert kind in refusal(DigitsDataModule(**SPLIT, **BATCHES))
    for content in (b"", b"\x1f\x8b cut off", b"1,2,3\n", b"17," * 64 + b"0\n", b"nan," * 64 + b"0\n"):
        (tmp_path / "digits.csv.gz").write_bytes(content)
        assert "install scikit-learn again" in refusal(DigitsDataModule(**SPLIT, **BATCHES))


def test_no_file_in_place_of_torchvisions_cifar(tmp_path: Path) -> None:
    (tmp_path / "cifar-100-python").mkdir()
    (tmp_path / "cifar-100-python" / "meta").write_bytes(b"")
    for kind in no_files(tmp_path / "cifar-100-python" / "train"):
        assert kind in refusal(of_cifar(tmp_path))


@pytest.mark.medium
def test_no_file_in_place_of_the_counts_of_a_long_tail(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "photos").symlink_to(photos / "photos")
    file = write_counts(tmp_path, COUNTS)
    for kind in no_files(file):
        assert kind in refusal(of_photographs(tmp_path, long_tailed=True))
    for content in ("9" * 5000, "[" * 100_000, "[NaN]", "\0"):
        file.write_text(content)
        assert "ImageNet_LT_train.json" in refusal(of_photographs(tmp_path, long_tailed=True))


def test_no_file_among_photographs_is_unreadable(few_photographs: Path) -> None:
    place = few_photographs / "photos/train/n00000000/0.JPEG"
    for kind in no_files(place):
        data = of_photographs(few_photographs)
        data.setup()
        _, targets, (said,) = data.data.train.read(torch.arange(6), torch.arange(6))
        assert targets.tolist() == [0, 0, 1, 1, 1]
        assert said == f"{place}: it is {kind}, but must be an ordinary file"


def test_no_file_in_place_of_a_users_input(few_images: Path) -> None:
    data = of_cifar(few_images)
    data.setup()
    for kind in no_files(few_images / "mine.png"):
        with pytest.raises(DataError, match=rf"mine.png: cannot be read \(it is {kind}"):
            data.encode(few_images / "mine.png")


def test_folders_that_may_not_be_read_are_named(few_photographs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listdir = os.listdir

    def locked(folder: Any) -> list[str]:
        if Path(folder).name == "n00000001":
            raise PermissionError(13, "Permission denied", str(folder))
        return listdir(folder)

    monkeypatch.setattr("os.listdir", locked)
    assert "n00000001: cannot be read (Permission denied)" in refusal(of_photographs(few_photographs))


# Tables of images


def write_columns(folder: Path, images: Any, labels: Any) -> None:
    columns = {"img": pyarrow.array(images), "fine_label": pyarrow.array(labels)}
    parquet.write_table(pyarrow.table(columns), folder / "cifar100" / "test.parquet")


@pytest.mark.medium
def test_columns_of_other_types_are_refused(few_images: Path) -> None:
    image = {"bytes": encoded(slope(32, 32)), "path": None}
    bomb = encoded(Image.new("1", (20_000, 20_000)))
    gif = encoded(slope(32, 32).quantize(), "GIF", save_all=True, append_images=[slope(32, 32).quantize()])
    cases: dict[str, tuple[Any, Any, str]] = {
        "bytes in place of an image": ([image["bytes"]], [1], "row 0: 'img' holds no encoded image"),
        "text in place of an image": (["a cat"], [1], "row 0: 'img' holds no encoded image"),
        "numbers in place of images": ([[1, 2, 3]], [1], "row 0: 'img' holds no encoded image"),
        "null in place of an image": ([image, None], [1, 1], "row 1: 'img' holds no encoded image"),
        "null in place of its bytes": ([image, {"bytes": None, "path": "a.png"}], [1, 1], "row 1: 'img' holds no"),
        "text in place of its bytes": ([{"bytes": "a cat"}], [1], "row 0: 'img' holds no encoded image"),
        "text in place of a label": ([image], ["cat"], "row 0: fine_label is 'cat'"),
        "bytes in place of a label": ([image], [b"1"], "row 0: fine_label is b'1'"),
        "a label that is not whole": ([image], [1.5], "row 0: fine_label is 1.5"),
        "a whole number as a float": ([image], [1.0], "row 0: fine_label is 1.0"),
        "NaN": ([image], [float("nan")], "row 0: fine_label is nan"),
        "a truth value": ([image], [True], "row 0: fine_label is True"),
        "null": ([image, image], [1, None], "row 1: fine_label is None"),
        "below 0": ([image], [-1], "row 0: fine_label is -1"),
        "above 99": ([image], [100], "row 0: fine_label is 100"),
        "a large label": ([image], [2**63 - 1], "row 0: fine_label is 9223372036854775807"),
        "a list": ([image], [[1]], "row 0: fine_label is [1]"),
        "a bomb": ([{"bytes": bomb, "path": None}], [1], "row 0: the image cannot be decoded (Image size"),
        "no bytes": ([{"bytes": b"", "path": None}], [1], "row 0: the image cannot be decoded ("),
        "half an image": ([{"bytes": image["bytes"][:60], "path": None}], [1], "row 0: the image cannot be decoded ("),
        "too large": ([{"bytes": encoded(slope(33, 32)), "path": None}], [1], "33 × 32 pixels, not 32 × 32"),
    }
    for name, (images, labels, said) in cases.items():
        write_columns(few_images, images, labels)
        found = refusal(of_cifar(few_images))
        assert f"{few_images}/cifar100/test.parquet, {said}" in found or said in found, (name, found)
        assert "fetch it again" in found, name
    write_columns(few_images, [{"bytes": gif, "path": None}], [1])
    of_cifar(few_images).setup()  # the first picture of an animated image


@pytest.mark.medium
def test_bombs_give_no_warning(few_images: Path) -> None:
    bomb = encoded(Image.new("1", (10_000, 10_000)))  # of which Pillow would only warn
    write_columns(few_images, [{"bytes": bomb, "path": None}], [1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "100000000 pixels" in refusal(of_cifar(few_images))
    with pytest.raises(Image.DecompressionBombWarning, match="100000000 pixels"):
        decoded(bomb)


# Photographs


def read(folder: Path, *names: bytes) -> tuple[torch.Tensor, list[str]]:
    images = ImageFiles(str(folder), np.array(names))
    targets = torch.arange(len(names))
    inputs, _, unreadable = Photographs(images, targets, measuring_transform(8, 10)).read(targets, targets)
    return inputs, unreadable


@pytest.mark.medium
def test_images_too_large_too_thin_or_broken_are_unreadable(tmp_path: Path) -> None:
    jpeg, png = encoded(slope(64, 64), "JPEG"), encoded(slope(64, 64))
    cases = {
        "bomb.png": (encoded(Image.new("1", (10_000, 10_000))), "exceeds limit"),
        "large bomb.png": (encoded(Image.new("1", (20_000, 20_000))), "exceeds limit"),
        "thin.png": (encoded(Image.new("L", (60_000, 1))), "60000 × 1 pixels"),
        "high.png": (encoded(Image.new("L", (1, 60_000))), "1 × 60000 pixels"),
        "cut.jpg": (jpeg[:300], ""),
        "cut.png": (png[: len(png) // 2], ""),
        "cut.gif": (encoded(slope().quantize(), "GIF")[:40], ""),
        "cut.webp": (encoded(slope(), "WEBP")[:40], ""),
        "cut.tif": (encoded(slope(), "TIFF")[:100], ""),
        "cut.bmp": (encoded(slope(), "BMP")[:100], ""),
        "cut.ppm": (encoded(slope(), "PPM")[:100], ""),
        "header.png": (png[:16], ""),
        "zeros.jpg": (bytes(5000), "no image of a known format"),
        "vector.jpg": (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "no image of a known format"),
        "lab.tif": (encoded(slope().convert("LAB"), "TIFF"), ""),
    }
    for name, (content, _) in cases.items():
        (tmp_path / name).write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        inputs, unreadable = read(tmp_path, *map(os.fsencode, cases))
    found = dict(zip([one.rpartition("/")[2].partition(":")[0] for one in unreadable], unreadable, strict=True))
    readable = [name for name in cases if name not in found]
    assert set(readable) <= {"lab.tif"}, readable
    assert all(cases[name][1] in said for name, said in found.items()), found
    assert len(inputs) == len(readable)


def test_animated_turned_and_stretched_images_are_read(tmp_path: Path) -> None:
    turned = Image.Exif()
    turned[0x0112] = 6  # to be turned by 90 degrees, which is not done: neither does torchvision's ImageFolder
    pictures = {"save_all": True, "append_images": [Image.new("P", (24, 16), 3)]}
    files = {
        b"animated.gif": encoded(slope().quantize(), "GIF", **pictures),
        b"plain.gif": encoded(slope().quantize(), "GIF"),
        b"turned.png": encoded(slope(), exif=turned),
        b"plain.png": encoded(slope()),
        b"stretched.png": encoded(Image.new("RGB", (2000, 10))),
    }
    for name, content in files.items():
        (tmp_path / os.fsdecode(name)).write_bytes(content)
    inputs, unreadable = read(tmp_path, *files)
    assert unreadable == []
    assert torch.equal(inputs[0], inputs[1])
    assert torch.equal(inputs[2], inputs[3])


def test_names_that_are_no_utf_8_can_be_printed(few_photographs: Path) -> None:
    name = few_photographs / "photos/train/n00000000" / os.fsdecode(b"caf\xe9.JPEG")
    name.write_bytes(b"no image")
    data = of_photographs(few_photographs, unreadable_share=0.0)
    data.setup()
    assert len(data.data.train.targets) == 7
    (batch,) = data.train_dataloader()
    with pytest.raises(DataError) as caught:
        data.on_before_batch_transfer(batch, 0)
    assert "caf\\udce9.JPEG: no image of a known format" in str(caught.value)
    for said in (*data.unreadable.names, str(caught.value), str(UserError(f"{name}: cannot be read"))):
        said.encode()


@pytest.mark.medium
def test_a_folder_whose_name_is_no_utf_8_is_read_or_named(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    refusal(of_tweets(folder)).encode()
    write_tweets(folder, tweets())
    of_tweets(folder).setup()


def test_damaged_images_of_a_torch_dataset_are_one_error(tmp_path: Path) -> None:
    from torchvision.datasets import ImageFolder

    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.png").write_bytes(encoded(slope()))
    (tmp_path / "dog" / "1.png").write_bytes(encoded(slope())[:60])
    data = TorchDatasetModule(train=ImageFolder(str(tmp_path)), test=ImageFolder(str(tmp_path)), **BATCHES)
    data.setup()
    with pytest.raises(DataError, match=r"ImageFolder: example 1 cannot be read \(.*\); restore its file"):
        data.data.train.read(torch.arange(2), torch.arange(2))
    for label in (None, "cat", True, 0.5, float("nan"), 1j, [1], 2**70):
        with pytest.raises(DataError, match=r"list: each example must be a pair of an input and a class number"):
            class_numbers([(torch.zeros(1), label)])


# Text


def test_strange_tables_of_tweets_are_one_error(tweets_folder: Path) -> None:
    file = tweets_folder / "airline" / "Tweets.csv"
    whole = file.read_bytes()
    text = whole.decode()
    cases = {
        "UTF-16": (text.encode("utf-16"), "byte 0xff is not UTF-8"),
        "UTF-16 without a mark": (text.encode("utf-16-le"), "no column 'tweet_id'"),
        "a field of 200,000 letters": (whole.replace(b"someone", b"x" * 200_000, 1), "field larger than field limit"),
        "a quote in the middle": (whole.replace(b"the late", b'"the late', 1), "never closed"),
        "a column twice": (whole.replace(b"name", b"text", 1), "several columns 'text'"),
        "a surrogate": (whole.replace(b"someone", b"\xed\xa0\x80", 1), "is not UTF-8"),
        "zeros": (bytes(len(whole)), "no column"),
    }
    for name, (content, said) in cases.items():
        file.write_bytes(content)
        found = refusal(of_tweets(tweets_folder))
        assert said in found, (name, found)
        assert str(file) in found, name
    file.write_bytes(whole.replace(b"someone", b"some\0one"))
    of_tweets(tweets_folder).setup()  # zeros where nobody reads them


@pytest.mark.medium
def test_strange_sentences_are_left_out_and_counted_or_refused(pairs_folder: Path) -> None:
    def skipped(german: bytes) -> dict[str, int]:
        write_pairs(pairs_folder, "test", german, lines(ENGLISH))
        data = of_pairs(pairs_folder)
        data.setup()
        return {why: data.data.facts[f"test_skipped_{why}"] for why in ("empty", "undecodable")}

    plain = lines(GERMAN)
    assert skipped(plain) == {"empty": 0, "undecodable": 0}
    assert skipped(plain.replace(b"ein Hund", b"ein\0Hund", 1)) == {"empty": 0, "undecodable": 1}
    assert skipped(plain.replace(b"ein Hund", b"\xed\xa0\x80", 1)) == {"empty": 0, "undecodable": 1}
    assert skipped(plain.replace("ein Hund läuft".encode(), b" \t", 1)) == {"empty": 1, "undecodable": 0}
    for german, said in (
        ("\n".join(GERMAN).encode("utf-16"), "pairs of sentences can be used"),
        (b"\xe9\n" * 11 + lines(GERMAN[11:]), "test: 9 of 20 pairs of sentences can be used"),
        (plain.replace(b"ein Hund", b"wort " * 200_000, 1), "test: 1 pairs have more than 1000 subwords on a side"),
        (plain[:-30], "lines, but"),
        (plain + plain, "40 lines, but"),
    ):
        write_pairs(pairs_folder, "test", german, lines(ENGLISH))
        assert said in refusal(of_pairs(pairs_folder)), german[:20]
    write_pairs(pairs_folder, "test", plain, lines(ENGLISH))
    write_pairs(pairs_folder, "train", plain.replace(b"ein Hund", b"w" * 2**20, 1), lines(ENGLISH))
    data = of_pairs(pairs_folder)
    data.setup()
    assert data.data.facts["train_skipped_over_long"] == 1


def test_values_of_the_hub_that_are_no_text_are_undecodable(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    rows = [{"de": "ja", "en": "yes"}, {"de": None, "en": "no"}]
    for table, outcome in (
        (datasets.Dataset.from_list(rows), {"empty": 0, "undecodable": 1}),
        (datasets.Dataset.from_list([{"de": 1, "en": 2}]), None),
        (datasets.Dataset.from_list([{"translation": None}, {"translation": None}]), None),
    ):
        monkeypatch.setattr(datasets, "load_dataset", lambda *_, table=table, **__: table)
        data = ParallelCorpusDataModule(folder=None, **CORPUS | BATCHES)
        if outcome:
            assert data.read("dev")[1] == outcome
        else:
            with pytest.raises(DataError, match="owner/pairs"):
                data.read("dev")


# The kept model of subwords


def test_a_damaged_model_of_subwords_is_learned_again(pairs_folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    def subwords() -> tuple[str, list[int]]:
        data = of_pairs(pairs_folder)
        data.setup()
        return data.data.facts["subwords_hash"], data.data.train.sources.tokens.tolist()

    first = subwords()
    (file,) = (pairs_folder / "subwords").iterdir()
    whole = file.read_bytes()
    other_data = of_pairs(pairs_folder)
    other_data.vocabulary_size = 50
    other_data.setup()
    (other,) = {*(pairs_folder / "subwords").iterdir()} - {file}
    damaged = {
        "empty": b"",
        "cut": whole[:-100],
        "garbage": bytes(1000),
        "a flipped bit": whole[:500] + bytes([whole[500] ^ 1]) + whole[501:],
        "of another vocabulary": other.read_bytes(),
    }
    for name, content in damaged.items():
        file.write_bytes(content)
        caplog.clear()
        assert subwords() == first, name
        assert f"{file} is damaged; it is computed again" in caplog.text, name
        assert file.read_bytes() == whole, name
    for kind in no_files(file):
        caplog.clear()
        assert subwords() == first, kind
        assert f"{file} cannot be read (it is {kind}" in caplog.text
    assert [left.name for left in (pairs_folder / "subwords").glob(".*")] == []


def test_a_process_killed_while_it_keeps_a_model_leaves_nothing_half_written(
    pairs_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(files, "this_process", lambda: f"{socket.gethostname()}-{2**22 + 1}")  # of no process
        patched.setattr(files.os, "fsync", die)  # what it has written is in the temporary file
        patched.setattr(files.Path, "unlink", lambda *_, **__: None)
        with pytest.raises(Killed):
            of_pairs(pairs_folder).setup()
    (unfinished,) = (pairs_folder / "subwords").iterdir()
    assert unfinished.name.startswith(".")
    of_pairs(pairs_folder).setup()
    (model,) = (pairs_folder / "subwords").iterdir()
    assert model.suffix == ".checked-model"
