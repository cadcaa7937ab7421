"""ImageNet: photographs decoded on demand, the long tail by list and by counts, one clear error for each bad folder."""

import io
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from experiments.data.examples import Draw, Reader
from experiments.data.imagenet import load_imagenet
from experiments.data.photographs import ImageFiles, Photographs, decoded, measuring_transform, training_transform
from experiments.data.randomness import sample_seeds
from experiments.data.samplers import loader
from experiments.data.unreadable import Unreadable
from experiments.errors import ConfigurationError, DataError
from experiments.settings import ImagenetSettings, ShotSettings

WNIDS = [f"n{number:08d}" for number in range(1000)]
# The profile of ImageNet-LT: 1,000 classes of 5 to 1,280 images, 115,846 in all; class 0 the largest, class 999 small.
COUNTS = [1280, *[115] * 791, *[114] * 206, 112, 5]
SETTINGS = ImagenetSettings(
    name="imagenet",
    folder="photos",
    test_folder="val",
    long_tailed=False,
    repeat_images=False,
    tail_seed=0,
    image_size=8,
    least_area=0.08,
    shorter_side=10,
    unreadable_share=0.001,
    shots=ShotSettings(rule="liu2019", many_above=100, few_below=20),
)
LONG_TAILED = replace(SETTINGS, long_tailed=True, repeat_images=True)


def picture(width: int = 24, height: int = 16) -> Image.Image:
    """A slope of colours, the same from left to right as from top to bottom."""
    slope = np.indices((height, width)).sum(axis=0)[..., None] * np.array([5, 3, 1])
    return Image.fromarray(slope.astype(np.uint8))


def encoded(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def pixels(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def in_folder(folder: Path, files: dict[str, bytes], transform: Callable[[Tensor], Tensor]) -> Photographs:
    for name, content in files.items():
        (folder / name).write_bytes(content)
    images = ImageFiles(str(folder), np.array([name.encode() for name in files]))
    return Photographs(images, torch.arange(len(files)), transform)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one image a class on each side, and nine more in the last class."""
    home = tmp_path_factory.mktemp("data")
    content = encoded(picture(), "JPEG")
    for wnid in WNIDS:
        for side in ("train", "val"):
            (home / "photos" / side / wnid).mkdir(parents=True)
            (home / "photos" / side / wnid / f"{wnid}_0.JPEG").write_bytes(content)
    for number in range(1, 10):
        (home / f"photos/train/{WNIDS[-1]}/{WNIDS[-1]}_{number}.JPEG").write_bytes(content)
    return home


@pytest.fixture
def linked(photos: Path, tmp_path: Path) -> Path:
    """The same images, in a folder to spoil."""
    (tmp_path / "photos/train").mkdir(parents=True)
    (tmp_path / "photos/val").symlink_to(photos / "photos/val")
    for folder in (photos / "photos/train").iterdir():
        (tmp_path / "photos/train" / folder.name).symlink_to(folder)
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


# Decoding


@pytest.mark.parametrize(
    "content",
    [
        encoded(picture()),
        encoded(picture().convert("CMYK"), "TIFF"),
        encoded(picture().convert("RGBA")),
        encoded(picture().quantize()),
        encoded(picture().quantize(), transparency=bytes(range(256))),
        encoded(picture().quantize(), "GIF"),
    ],
    ids=["RGB", "CMYK", "alpha", "palette", "palette with alpha", "GIF"],
)
def test_every_format_gives_the_same_pixels(content: bytes) -> None:
    assert torch.equal(decoded(content), pixels(picture()))


def test_cmyk_jpeg_gives_nearly_the_same_pixels() -> None:
    difference = decoded(encoded(picture().convert("CMYK"), "JPEG")).int() - pixels(picture())
    assert difference.abs().max() < 8


@pytest.mark.parametrize("mode", ["L", "LA", "1"])
def test_greyscale_has_three_equal_channels(mode: str) -> None:
    image = picture().convert(mode)
    assert torch.equal(decoded(encoded(image)), pixels(image.convert("L").convert("RGB")))


def test_sixteen_bits_are_scaled_to_eight() -> None:
    slope = np.arange(0, 65536, 256, dtype=np.uint16).reshape(16, 16)
    image = Image.fromarray(slope)
    assert torch.equal(decoded(encoded(image)), torch.arange(256, dtype=torch.uint8).reshape(16, 16).expand(3, 16, 16))


def test_pixels_of_unknown_range_are_refused() -> None:
    with pytest.raises(ValueError, match="mode F"):
        decoded(encoded(Image.fromarray(np.ones((4, 4), dtype=np.float32)), "TIFF"))


def test_broken_files_are_left_out_and_named(tmp_path: Path) -> None:
    good = encoded(picture(), "JPEG")
    files = {
        "first.JPEG": good,
        "empty.JPEG": b"",
        "truncated.JPEG": good[: len(good) - 100],
        "text.JPEG": b"not found",
        "last.JPEG": good,
    }
    photographs = in_folder(tmp_path, files, measuring_transform(8, 10))

    inputs, targets, unreadable = photographs.read(torch.arange(5), torch.arange(5))

    assert inputs.shape == (2, 3, 8, 8)
    assert inputs.dtype == torch.uint8
    assert targets.tolist() == [0, 4]
    empty, truncated, text = unreadable
    assert empty == f"{tmp_path}/empty.JPEG: the file is empty"
    assert truncated.startswith(f"{tmp_path}/truncated.JPEG: ")
    assert "runcated" in truncated
    assert text == f"{tmp_path}/text.JPEG: no image of a known format"


def test_a_file_that_vanishes_is_left_out_and_named(tmp_path: Path) -> None:
    photographs = in_folder(tmp_path, {"gone.JPEG": encoded(picture())}, measuring_transform(8, 10))
    (tmp_path / "gone.JPEG").unlink()

    inputs, targets, unreadable = photographs.read(torch.tensor([0]), torch.tensor([7]))

    assert len(inputs) == len(targets) == 0
    assert unreadable == [f"{tmp_path}/gone.JPEG: No such file or directory"]


def test_too_many_broken_files_are_an_error(linked: Path) -> None:
    settings = replace(SETTINGS, unreadable_share=0.001)  # of 2,009 images: two
    for wnid in WNIDS[:3]:
        (own(linked / "photos/train", wnid) / f"{wnid}_0.JPEG").write_bytes(b"")
    data = load_imagenet(settings, linked)
    reader, unreadable = Reader(data.train), Unreadable(data.unreadable_most)

    unreadable.add(reader[drawing(range(2), epoch=0)].unreadable)
    unreadable.add(reader[drawing(range(2), epoch=1)].unreadable)  # the same ones again
    with pytest.raises(DataError, match=f"3 examples cannot be read, 2 are allowed:\n .*{WNIDS[0]}_0.JPEG"):
        unreadable.add(reader[drawing(range(2, 4), epoch=0)].unreadable)


def test_broken_files_of_all_processes_count_together(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(count_in_process, (f"file://{tmp_path}/meeting",), nprocs=2)


def count_in_process(process: int, meeting: str) -> None:
    torch.distributed.init_process_group("gloo", init_method=meeting, world_size=2, rank=process)
    fabric = SimpleNamespace(world_size=2)
    unreadable = Unreadable(most=2)
    unreadable.add(["both"])
    unreadable.gather(fabric)
    assert unreadable.names == {"both"}
    unreadable.add([f"of {process}"])
    with pytest.raises(DataError, match="3 examples cannot be read"):
        unreadable.gather(fabric)
    torch.distributed.destroy_process_group()


# Transforms


def test_measuring_cuts_the_middle_of_the_resized_image() -> None:
    image = torch.zeros(3, 20, 60, dtype=torch.uint8)
    image[:, :, 20:40] = 200  # the middle third; resized to 10 × 30 pixels, the middle 8 × 8 lie within it

    assert torch.equal(measuring_transform(8, 10)(image), torch.full((3, 8, 8), 200, dtype=torch.uint8))


def test_training_takes_parts_and_mirror_images() -> None:
    image = torch.arange(240, dtype=torch.uint8).expand(3, 240, 240)  # brighter to the right
    crops = [training_transform(8, 0.08)(image)[0] for _ in range(200)]

    rising = [bool(crop[0, 0] < crop[0, -1]) for crop in crops]
    assert 60 < sum(rising) < 140
    widths = torch.tensor([int(crop.max()) - int(crop.min()) for crop in crops])  # of the part, less its outer pixels
    assert widths.min() < 100
    assert widths.max() > 190
    assert {crop.shape for crop in crops} == {(8, 8)}


@pytest.fixture
def many(tmp_path: Path) -> Photographs:
    files = {f"{number}.PNG": encoded(picture(24 + number)) for number in range(12)}
    return in_folder(tmp_path, files, training_transform(8, 0.08))


def drawing(indices: Sequence[int], epoch: int) -> Draw:
    chosen = torch.tensor(indices)
    return Draw(chosen, sample_seeds(21, epoch, chosen), 1.0)


def drawn(examples: Photographs, batches: list[list[int]], epoch: int, workers: int) -> dict[int, Tensor]:
    draws = [drawing(batch, epoch) for batch in batches]
    read = loader(examples, draws, workers=workers, pin_memory=False)
    return {int(target): image for batch in read for target, image in zip(batch.targets, batch.inputs, strict=True)}


def test_pixels_depend_on_seed_epoch_and_index_alone(many: Photographs) -> None:
    here = drawn(many, [list(range(12))], epoch=3, workers=0)
    in_workers = drawn(many, [[7, 2, 11], [0, 1], [3, 9, 5, 4], [10], [8, 6]], epoch=3, workers=2)
    later = drawn(many, [list(range(12))], epoch=4, workers=0)

    assert here.keys() == in_workers.keys() == set(range(12))
    assert all(torch.equal(here[index], in_workers[index]) for index in here)
    assert sum(not torch.equal(here[index], later[index]) for index in here) >= 11


def test_reading_leaves_the_global_generator_alone(many: Photographs) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    many.read(torch.arange(12), torch.arange(12))

    assert torch.equal(torch.rand(3), expected)


# The balanced set


def test_all_images_of_both_sides_are_loaded(photos: Path) -> None:
    data = load_imagenet(SETTINGS, photos)

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

    assert load_imagenet(SETTINGS, linked).facts["train_size"] == 1009


def test_split_hash_follows_the_names_wherever_they_lie(photos: Path, linked: Path) -> None:
    whole, moved = (load_imagenet(SETTINGS, folder).split_hash for folder in (photos, linked))
    folder = own(linked / "photos/train", WNIDS[4])
    (folder / f"{WNIDS[4]}_0.JPEG").rename(folder / f"{WNIDS[4]}_1.JPEG")

    assert whole == moved != load_imagenet(SETTINGS, linked).split_hash


def test_one_folder_may_be_both_sides(photos: Path) -> None:
    data = load_imagenet(replace(SETTINGS, test_folder="train"), photos)
    assert data.facts == {"train_size": 1009, "test_size": 1009}


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda train: shutil.rmtree(train.parent), "photos/train: cannot be read .*paths.data.*data.folder"),
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
        load_imagenet(SETTINGS, linked)


def test_test_images_in_one_heap_are_refused(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "photos/heap").mkdir(parents=True)
    (tmp_path / "photos/train").symlink_to(photos / "photos/train")
    (tmp_path / "photos/heap/ILSVRC2012_val_00000001.JPEG").write_bytes(b"")
    with pytest.raises(DataError, match=r"heap: 0 class folders, 1000 are expected.*there are ILSVRC2012_val_00000001"):
        load_imagenet(replace(SETTINGS, test_folder="heap"), tmp_path)


def test_a_square_larger_than_the_resized_image_is_refused(photos: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"data.shorter_side=7 is not allowed.*data.image_size=8"):
        load_imagenet(replace(SETTINGS, shorter_side=7), photos)


# The long tail


def test_counts_give_exactly_that_many_images(linked: Path) -> None:
    write_counts(linked, COUNTS)
    data = load_imagenet(LONG_TAILED, linked)

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


def test_the_sample_follows_the_tail_seed(linked: Path) -> None:
    write_counts(linked, COUNTS)
    first, again, other = (load_imagenet(replace(LONG_TAILED, tail_seed=seed), linked) for seed in (0, 0, 1))

    assert kept_names(first.train) == kept_names(again.train) != kept_names(other.train)
    assert len(set(kept_names(first.train)[-5:])) == 5
    assert first.split_hash == again.split_hash != other.split_hash


def test_the_published_list_gives_exactly_its_images(linked: Path) -> None:
    write_counts(linked, "never looked at")
    lines = published_lines()
    write_list(linked, lines)
    data = load_imagenet(replace(SETTINGS, long_tailed=True), linked)

    assert kept_names(data.train) == [line.split()[0] for line in lines]
    assert data.train.targets.bincount().tolist() == COUNTS
    assert data.facts["train_list"] == "published list"


def test_listed_images_that_are_missing_are_counted_and_named(linked: Path) -> None:
    lines = published_lines()
    lines[0] = f"train/{WNIDS[0]}/{WNIDS[0]}_77.JPEG 0"
    lines[-1] = f"train/{WNIDS[-1]}/{WNIDS[-1]}_99.JPEG 999"
    write_list(linked, lines)
    message = "2 of the 115846 images of .*train.txt are missing: train/n00000000/n00000000_77.JPEG, train/n00000999/"
    with pytest.raises(DataError, match=message):
        load_imagenet(LONG_TAILED, linked)


@pytest.mark.parametrize(
    "line", ["train/n00000000/n00000000_0.JPEG 1", "train/n00000000/n00000000_0.JPEG", "n00000000_0.JPEG 0", "a b 1000"]
)
def test_a_bad_line_of_the_list_is_named(linked: Path, line: str) -> None:
    write_list(linked, [published_lines()[0], line])
    with pytest.raises(DataError, match=f"ImageNet_LT_train.txt, line 2: '{line}' is not train/<wnid>/<file>"):
        load_imagenet(LONG_TAILED, linked)


def test_a_truncated_list_is_refused(linked: Path) -> None:
    write_list(linked, published_lines()[:-1])
    with pytest.raises(DataError, match="1000 classes of 4 to 1280 images, 115845 in all; ImageNet-LT has 1000 of 5"):
        load_imagenet(LONG_TAILED, linked)


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        (COUNTS[:-1], "999 classes of 112 to 1280 images, 115841 in all; ImageNet-LT has 1000 of 5 to 1280, 115846"),
        ([1281, *COUNTS[1:-2], 111, 5], "1000 classes of 5 to 1281 images"),
        ([*COUNTS[:-1], 6], "1000 classes of 6 to 1280 images"),
        ([*COUNTS[:-1], 5.0], "is no list of whole numbers"),
        ({"n00000000": 5}, "is no list of whole numbers"),
        ([], "is no list of whole numbers"),
    ],
    ids=["a class less", "too large", "too small", "a fraction", "no list", "empty"],
)
def test_wrong_counts_are_refused(linked: Path, counts: object, message: str) -> None:
    path = write_counts(linked, counts)
    with pytest.raises(DataError, match=f"{path}: {message}"):
        load_imagenet(LONG_TAILED, linked)


def test_counts_that_are_no_json_are_refused(linked: Path) -> None:
    path = write_counts(linked, COUNTS)
    path.write_text(path.read_text()[:-1])
    with pytest.raises(DataError, match=f"{path}, line 1: is no JSON"):
        load_imagenet(LONG_TAILED, linked)


def test_a_missing_list_names_both_files_that_would_do(photos: Path) -> None:
    with pytest.raises(DataError, match=r"ImageNet_LT_train.json: is missing.*imagenet_lt/ImageNet_LT_train.txt"):
        load_imagenet(LONG_TAILED, photos)


def test_too_few_images_for_a_count_are_refused(linked: Path) -> None:
    write_counts(linked, COUNTS)
    with pytest.raises(DataError, match=r"class 0 has 1 examples, 1280 are to be kept.*data.repeat_images=true"):
        load_imagenet(replace(LONG_TAILED, repeat_images=False), linked)


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
        images = [{"bytes": encoded(picture()), "path": None} for _ in labels[split]]
        images[1]["bytes"] = b"cut off"
        return datasets.Dataset.from_dict({"image": images, "label": labels[split]}, features=features)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    monkeypatch.chdir(tmp_path)
    return labels


@pytest.mark.usefixtures("hub")
def test_the_hub_gives_encoded_rows() -> None:
    data = load_imagenet(SETTINGS, None)

    assert data.class_names[:2] == ("name 0", "name 1")
    assert data.facts == {"train_size": 1000, "test_size": 1000}
    inputs, targets, unreadable = data.train.read(torch.arange(3), torch.arange(3))
    assert inputs.shape == (2, 3, 8, 8)
    assert targets.tolist() == [999, 997]
    assert unreadable == ["ILSVRC/imagenet-1k/train, row 1: no image of a known format"]


@pytest.mark.usefixtures("hub")
def test_the_hub_takes_the_counts_from_the_data_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data/imagenet_lt/ImageNet_LT_train.json: is missing"):
        load_imagenet(LONG_TAILED, None)
    (tmp_path / "data").mkdir()
    write_counts(tmp_path / "data", COUNTS)

    data = load_imagenet(LONG_TAILED, None)

    assert data.train.targets.bincount().tolist() == COUNTS
    first_of_class_999 = data.train.targets.tolist().index(999)
    assert kept_names(data.train)[first_of_class_999] == "train, row 0"


def test_hub_rows_without_every_class_are_refused(hub: dict[str, list[int]]) -> None:
    hub["validation"] = [-1] * 1000
    with pytest.raises(DataError, match="imagenet-1k, validation: 1 classes from -1 to -1, 1000 from 0 are expected"):
        load_imagenet(SETTINGS, None)


def test_a_hub_that_refuses_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("gated")

    monkeypatch.setattr("datasets.load_dataset", refuse)
    with pytest.raises(DataError, match=r"gated.*hf auth login.*paths.data=FOLDER"):
        load_imagenet(SETTINGS, None)
