"""ImageNet: folders and tables of photographs, the long tail by list and by counts, one error for each bad folder."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from experiments.data.examples import ClassificationData
from experiments.data.imagenet import ImagenetDataModule
from experiments.data.long_tail import ShotRule
from experiments.data.photographs import Photographs, decoded, measuring_transform
from experiments.errors import ConfigurationError, DataError
from tests.experiments.data.generated import WNIDS, encoded, slope
from tests.experiments.data.support import BATCHES, trainer

# The profile of ImageNet-LT: 1,000 classes of 5 to 1,280 images, 115,846 in all; class 0 the largest, class 999 small.
COUNTS = [1280, *[115] * 791, *[114] * 206, 112, 5]
SETTINGS: dict[str, Any] = {
    "images": "photos",
    "test_folder": "val",
    "image_size": 8,
    "least_area": 0.08,
    "shorter_side": 10,
    "unreadable_share": 0.001,
    "shots": ShotRule(rule="liu2019", many_above=100, few_below=20),
}
LONG_TAILED = {"long_tailed": True, "repeat_images": True}


def module(folder: Path | None, **changes: Any) -> ImagenetDataModule:
    data = ImagenetDataModule(folder=folder, **SETTINGS | BATCHES | changes)
    data.trainer = trainer()
    data.setup()
    return data


def load(folder: Path | None, **changes: Any) -> ClassificationData:
    return module(folder, **changes).data


@pytest.fixture
def linked(photos: Path, tmp_path: Path) -> Path:
    """The same images, in a folder to spoil."""
    (tmp_path / "photos/train").mkdir(parents=True)
    (tmp_path / "photos/val").symlink_to(photos / "photos/val")
    for folder in (photos / "photos/train").iterdir():
        (tmp_path / "photos/train" / folder.name).symlink_to(folder)
    return tmp_path


@pytest.fixture
def home(photos: Path, tmp_path: Path) -> Path:
    """The same images, in a folder to add files to."""
    (tmp_path / "photos").symlink_to(photos / "photos")
    return tmp_path


def own(train: Path, wnid: str) -> Path:
    """The class folder, no longer shared."""
    folder = train / wnid
    original = folder.resolve()
    folder.unlink()
    shutil.copytree(original, folder)
    return folder


def write_counts(home: Path, content: object) -> Path:
    path = home / "imagenet_lt/ImageNet_LT_train.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content))
    return path


def write_list(home: Path, lines: list[str]) -> Path:
    path = home / "imagenet_lt/ImageNet_LT_train.txt"
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


def published_lines() -> list[str]:
    """A list of the published profile that repeats the one image of each class, and of the last class has the last."""
    chosen = [*([0] * 999), 9]
    return [
        f"train/{wnid}/{wnid}_{number}.JPEG {label}"
        for label, (wnid, number, count) in enumerate(zip(WNIDS, chosen, COUNTS, strict=True))
        for _ in range(count)
    ]


def kept_names(photographs: Photographs) -> list[str]:
    return [photographs.images.name(index) for index in range(len(photographs.targets))]


# The balanced set


def test_all_images_of_both_sides_are_loaded(photos: Path) -> None:
    data = load(photos)

    assert data.class_names == tuple(WNIDS)
    assert data.train.targets.tolist() == [*range(1000), *[999] * 9]
    assert data.test.targets.tolist() == list(range(1000))
    assert data.facts == {"train_size": 1009, "test_size": 1000}
    assert data.shots is None
    assert data.unreadable_most == 2
    inputs, targets, unreadable = data.test.read(torch.tensor([999, 3]), torch.zeros(2, dtype=torch.int64))
    assert inputs.shape == (2, 3, 8, 8)
    assert targets.tolist() == [999, 3]
    assert unreadable == []


def test_other_files_beside_the_images_are_no_examples(linked: Path) -> None:
    (own(linked / "photos/train", WNIDS[4]) / "notes.txt").write_text("seen")
    (linked / "photos/train/README").write_text("1,000 classes")

    assert load(linked).facts["train_size"] == 1009


def test_content_hash_follows_the_images_wherever_they_lie(photos: Path, linked: Path) -> None:
    whole, moved = (load(folder).content_hash for folder in (photos, linked))
    image = own(linked / "photos/train", WNIDS[4]) / f"{WNIDS[4]}_0.JPEG"
    image.write_bytes(image.read_bytes()[:-1])

    assert whole == moved != load(linked).content_hash


def test_one_folder_may_be_both_sides(photos: Path) -> None:
    data = load(photos, test_folder="train")
    assert data.facts == {"train_size": 1009, "test_size": 1009}


def test_too_many_broken_files_are_an_error(linked: Path) -> None:
    for wnid in WNIDS[:3]:
        (own(linked / "photos/train", wnid) / f"{wnid}_0.JPEG").write_bytes(b"")
    data = module(linked, evaluation_batch_size=2)  # a share of 0.001 of 2,009 images: two
    data.trainer.training = False

    def read(batches: int) -> None:
        for _, batch in zip(range(batches), data.val_dataloader()[0], strict=False):
            data.on_before_batch_transfer(batch, 0)

    read(1)
    read(1)  # the same ones again
    with pytest.raises(DataError, match=f"3 examples cannot be read, 2 are allowed:\n .*{WNIDS[0]}_0.JPEG"):
        read(2)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda train: shutil.rmtree(train.parent), "photos/train: cannot be read .*paths.data.*data.images"),
        (lambda train: (train / WNIDS[7]).unlink(), "photos/train: 999 class folders, 1000 are expected.*n00000000, "),
        (lambda train: (train / WNIDS[7]).rename(train / "n99999999"), "only one of them has n00000007, n99999999"),
        (lambda train: (train / WNIDS[7]).rename(train / "tench"), "train: 999 class folders"),
        (lambda train: (own(train, WNIDS[7]) / f"{WNIDS[7]}_0.JPEG").unlink(), "n00000007: holds no image"),
    ],
    ids=["no folder", "a class less", "another class", "no WordNet id", "empty class"],
)
def test_incomplete_folders_are_refused(linked: Path, spoil: Callable[[Path], object], message: str) -> None:
    spoil(linked / "photos/train")
    with pytest.raises(DataError, match=message):
        load(linked)


def test_test_images_in_one_heap_are_refused(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "photos/heap").mkdir(parents=True)
    (tmp_path / "photos/train").symlink_to(photos / "photos/train")
    (tmp_path / "photos/heap/ILSVRC2012_val_00000001.JPEG").write_bytes(b"")
    with pytest.raises(DataError, match=r"heap: 0 class folders, 1000 are expected.*there are ILSVRC2012_val_00000001"):
        load(tmp_path, test_folder="heap")


def test_a_square_larger_than_the_resized_image_is_refused(photos: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"data.shorter_side=7 is not allowed.*data.image_size=8"):
        load(photos, shorter_side=7)


# The long tail


def test_counts_give_exactly_that_many_images(home: Path) -> None:
    write_counts(home, COUNTS)
    data = load(home, **LONG_TAILED)

    assert data.train.targets.bincount().tolist() == COUNTS
    assert data.facts == {
        "train_size": 115_846,
        "test_size": 1000,
        "train_list": "sampled by counts",
        "repeated_images": 115_846 - 999 - 5,
        "largest_class": 1280,
        "smallest_class": 5,
        "shot_rule": "many > 100, few < 20 training examples (liu2019)",
        "many_classes": 999,
        "few_classes": 1,
    }
    assert data.shots is not None
    assert data.shots["few"].tolist() == [999]
    assert data.unreadable_most == 2  # of the images there are, however often they repeat


@pytest.mark.medium
def test_the_sample_follows_the_tail_seed(home: Path) -> None:
    write_counts(home, COUNTS)
    first, again, other = (load(home, **LONG_TAILED, tail_seed=seed) for seed in (0, 0, 1))

    assert kept_names(first.train) == kept_names(again.train) != kept_names(other.train)
    assert len(set(kept_names(first.train)[-5:])) == 5
    assert first.content_hash == again.content_hash  # as is the other one here, whose images are all alike


def test_the_published_list_gives_exactly_its_images(home: Path) -> None:
    write_counts(home, "never looked at")
    lines = published_lines()
    write_list(home, lines)
    data = load(home, long_tailed=True)

    assert kept_names(data.train) == [line.split()[0] for line in lines]
    assert data.train.targets.bincount().tolist() == COUNTS
    assert data.facts["train_list"] == "published list"


def test_listed_images_that_are_missing_are_counted_and_named(home: Path) -> None:
    lines = published_lines()
    lines[0] = f"train/{WNIDS[0]}/{WNIDS[0]}_77.JPEG 0"
    lines[-1] = f"train/{WNIDS[-1]}/{WNIDS[-1]}_99.JPEG 999"
    write_list(home, lines)
    message = "2 of the 115846 images of .*train.txt are missing: train/n00000000/n00000000_77.JPEG, train/n00000999/"
    with pytest.raises(DataError, match=message):
        load(home, **LONG_TAILED)


@pytest.mark.parametrize(
    "line", ["train/n00000000/n00000000_0.JPEG 1", "train/n00000000/n00000000_0.JPEG", "n00000000_0.JPEG 0", "a b 1000"]
)
def test_a_bad_line_of_the_list_is_named(home: Path, line: str) -> None:
    write_list(home, [published_lines()[0], line])
    with pytest.raises(DataError, match=f"ImageNet_LT_train.txt, line 2: '{line}' is not train/<wnid>/<file>"):
        load(home, **LONG_TAILED)


def test_a_truncated_list_is_refused(home: Path) -> None:
    write_list(home, published_lines()[:-1])
    with pytest.raises(DataError, match="1000 classes of 4 to 1280 images, 115845 in all; ImageNet-LT has 1000 "):
        load(home, **LONG_TAILED)


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        (COUNTS[:-1], "999 classes of 112 to 1280 images, 115841 in all; ImageNet-LT has 1000 classes of 5 to 1280"),
        ([1281, *COUNTS[1:-2], 111, 5], "1000 classes of 5 to 1281 images"),
        ([*COUNTS[:-1], 6], "1000 classes of 6 to 1280 images"),
        ([*COUNTS[:-1], 5.0], "is no list of whole numbers"),
        ({"n00000000": 5}, "is no list of whole numbers"),
        ([], "is no list of whole numbers"),
    ],
    ids=["a class less", "too large", "too small", "a fraction", "no list", "empty"],
)
def test_wrong_counts_are_refused(home: Path, counts: object, message: str) -> None:
    path = write_counts(home, counts)
    with pytest.raises(DataError, match=f"{path}: {message}"):
        load(home, **LONG_TAILED)


def test_counts_that_are_no_json_are_refused(home: Path) -> None:
    path = write_counts(home, COUNTS)
    path.write_text(path.read_text()[:-1])
    with pytest.raises(DataError, match=f"{path}, line 1: is no JSON"):
        load(home, **LONG_TAILED)


def test_a_missing_list_names_both_files_that_would_do(photos: Path) -> None:
    with pytest.raises(DataError, match=r"ImageNet_LT_train.json: cannot be read.*imagenet_lt/ImageNet_LT_train.txt"):
        load(photos, **LONG_TAILED)


def test_too_few_images_for_a_count_are_refused(home: Path) -> None:
    write_counts(home, COUNTS)
    with pytest.raises(DataError, match=r"class 0 has 1 examples, 1280 are to be kept.*data.repeat_images=true"):
        load(home, long_tailed=True)


# The hub


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, list[int]]:
    """A stub of the hub's client; gives the labels of each split's images, to be changed before loading."""
    import datasets

    features = datasets.Features(
        image=datasets.Image(), label=datasets.ClassLabel(names=[f"name {number}" for number in range(1000)])
    )
    labels = {"train": [*range(1000)][::-1], "validation": [*range(1000)]}

    def load_dataset(name: str, split: str) -> datasets.Dataset:
        assert name == "ILSVRC/imagenet-1k"
        images = [{"bytes": encoded(slope()), "path": None} for _ in labels[split]]
        images[1]["bytes"] = b"cut off"
        return datasets.Dataset.from_dict({"image": images, "label": labels[split]}, features=features)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    monkeypatch.chdir(tmp_path)
    return labels


@pytest.mark.usefixtures("hub")
def test_the_hub_gives_encoded_rows() -> None:
    data = load(None)

    assert data.class_names[:2] == ("name 0", "name 1")
    assert data.facts == {"train_size": 1000, "test_size": 1000}
    inputs, targets, unreadable = data.train.read(torch.arange(3), torch.arange(3))
    assert inputs.shape == (2, 3, 8, 8)
    assert targets.tolist() == [999, 997]
    assert unreadable == ["ILSVRC/imagenet-1k/train, row 1: no image of a known format"]


@pytest.mark.medium
@pytest.mark.usefixtures("hub")
def test_the_hub_takes_the_counts_from_the_data_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data/imagenet_lt/ImageNet_LT_train.json: cannot be read"):
        load(None, **LONG_TAILED)
    (tmp_path / "data").mkdir()
    write_counts(tmp_path / "data", COUNTS)

    data = load(None, **LONG_TAILED)

    assert data.train.targets.bincount().tolist() == COUNTS
    first_of_class_999 = data.train.targets.tolist().index(999)
    assert kept_names(data.train)[first_of_class_999] == "train, row 0"


def test_hub_rows_without_every_class_are_refused(hub: dict[str, list[int]]) -> None:
    hub["validation"] = [-1] * 1000
    with pytest.raises(DataError, match="imagenet-1k, validation: 1 classes from -1 to -1, 1000 from 0 are expected"):
        load(None)


def test_a_hub_that_refuses_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("gated")

    monkeypatch.setattr("datasets.load_dataset", refuse)
    with pytest.raises(DataError, match=r"gated.*hf auth login.*paths.data=FOLDER"):
        load(None)


# A user's image, and validation


def test_an_image_of_a_user_is_cut_as_test_images_are(photos: Path, tmp_path: Path) -> None:
    data = module(photos)
    content = encoded(slope(33, 21))
    (tmp_path / "mine.png").write_bytes(content)

    inputs, names = data.encode(tmp_path / "mine.png")

    assert inputs.shape == (1, 3, 8, 8)
    assert torch.equal(inputs[0], measuring_transform(8, 10)(decoded(content)))
    assert names == [""]
