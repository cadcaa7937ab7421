"""The rules by which pictures are read, at each door: training images of every data set, and predictions."""

import io
import re
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import ConcatDataset, Subset
from torchvision.datasets import ImageFolder

from experiments.data.torch_datasets import TorchDatasetModule
from experiments.errors import DataError
from tests.experiments.data.generated import (
    CIFAR_PIXELS,
    WNIDS,
    cifar_rows,
    encoded,
    tiny_rows,
    write_cifar,
    write_tiny,
)
from tests.experiments.data.support import BATCHES, loaded, ready
from tests.experiments.data.test_torch_datasets import Pairs

RGB, OTHER = (Image.fromarray(CIFAR_PIXELS[number]) for number in (7, 8))
FEW_COLOURS = RGB.quantize(8)
SIDEWAYS = Image.Exif()
SIDEWAYS[0x0112] = 6  # the camera was turned by 90°
WITH_A_HOLE = RGB.convert("RGBA")
WITH_A_HOLE.putpixel((3, 3), (1, 2, 3, 127))
TWO: dict[str, Any] = {"save_all": True, "append_images": [OTHER]}


def bright(side, kind):
    return Image.fromarray(np.full((side, side), 60_000, kind))


REFUSED = [
    ("its mode I;16 can have values above 255", encoded(bright(32, np.uint16))),
    ("its mode I;16 can have values above 255", encoded(bright(32, np.uint16), "TIFF")),
    ("its mode I can have values above 255", encoded(bright(32, np.int32), "TIFF")),
    ("its mode F can have values above 255", encoded(bright(32, np.float32), "TIFF")),
    ("some of its pixels are transparent", encoded(WITH_A_HOLE)),
    ("some of its pixels are transparent", encoded(FEW_COLOURS, "PNG", transparency=FEW_COLOURS.getpixel((0, 0)))),
    ("it has 2 pictures", encoded(RGB, "GIF", **TWO)),
]
READ = [
    (encoded(RGB.convert("RGBA")), RGB),
    (encoded(FEW_COLOURS), FEW_COLOURS.convert("RGB")),
    (encoded(RGB.convert("CMYK"), "TIFF"), RGB.convert("CMYK").convert("RGB")),
    (encoded(RGB, exif=SIDEWAYS), RGB.transpose(Image.Transpose.ROTATE_270)),
    (encoded(RGB, "MPO", **TWO), Image.open(io.BytesIO(encoded(RGB, "JPEG")))),  # a phone's photograph, with a preview
]


def test_a_picture_is_read_as_it_looks_or_refused(cifar, tmp_path):
    data, file = ready("cifar100", cifar), tmp_path / "mine"
    for reason, content in REFUSED:
        file.write_bytes(content)
        with pytest.raises(DataError, match=rf"mine: cannot be read as input of Cifar100DataModule \({reason}"):
            data.encode(file)
    for content, expected in READ:
        file.write_bytes(content)
        assert np.array_equal(data.encode(file)[0][0].permute(1, 2, 0), np.asarray(expected))


# Every door refuses a picture of sixteen bits.


def of_cifar(folder):
    write_cifar(folder, "test", [*cifar_rows("test")[:-1], {"img": {"bytes": REFUSED[0][1]}, "fine_label": 99}])
    loaded("cifar100", folder)


def of_tiny_imagenet(folder):
    content = {"bytes": encoded(bright(64, np.uint16)), "path": None}
    write_tiny(folder, "valid", [*tiny_rows("valid")[:-1], {"image": content, "label": 99}])
    loaded("tiny_imagenet", folder)


def of_imagenet(folder):
    (folder / f"photos/train/{WNIDS[1]}/{WNIDS[1]}_0.JPEG").write_bytes(REFUSED[0][1])
    [*ready("imagenet", folder).train_dataloader()]


def own_pictures(folder):
    for kind in ("cat", "dog"):
        (folder / "own" / kind).mkdir(parents=True)
        (folder / "own" / kind / "1.png").write_bytes(REFUSED[0][1])
    return ImageFolder(str(folder / "own"))


def own(dataset):
    module = TorchDatasetModule(train=dataset, test=dataset, **BATCHES)
    module.setup()
    return module


def of_a_folder(folder):
    own(own_pictures(folder))


def of_a_part_of_a_folder(folder):
    own(Subset(own_pictures(folder), [0, 1]))


def for_a_prediction(name):
    def read(folder):
        (folder / "mine.png").write_bytes(encoded(bright(8, np.uint16)))
        ready(name, folder).encode(folder / "mine.png")

    return read


DOORS = [
    ("cifar100", of_cifar),
    ("tiny_imagenet", of_tiny_imagenet),
    ("imagenet", of_imagenet),
    ("digits", of_a_folder),
    ("digits", of_a_part_of_a_folder),
    ("digits", for_a_prediction("digits")),
    ("imagenet", for_a_prediction("imagenet")),
]


@pytest.mark.parametrize(("name", "read"), DOORS)
def test_every_door_refuses_sixteen_bits(name, read, folder_of):
    with pytest.raises(DataError, match=r"its mode I;16 can have values above 255; save it with eight bits a channel"):
        read(folder_of(name))


BLACK_AND_WHITE = RGB.convert("1")
OF_A_DATASET = [
    (FEW_COLOURS, FEW_COLOURS.convert("RGB")),
    (RGB.convert("RGBA"), RGB),
    (BLACK_AND_WHITE, BLACK_AND_WHITE.convert("RGB")),
    (RGB.convert("L"), RGB.convert("L")),
    (bright(8, np.uint16), bright(8, np.uint16)),
]


@pytest.mark.parametrize(("image", "expected"), OF_A_DATASET, ids=lambda image: image.mode)
def test_an_image_of_a_dataset_is_grey_with_its_own_values_or_rgb(image, expected):
    module = own(Pairs((image, 0), (image, 1)))
    pixels, _ = module.data.train.read(torch.tensor([1]), torch.tensor([0]))
    assert np.array_equal(pixels[0].permute(1, 2, 0).squeeze(-1), np.asarray(expected))


@pytest.mark.parametrize("mode", ["RGBA", "I;16B"])
def test_an_image_of_a_dataset_that_is_no_picture_names_the_example(mode):
    image = WITH_A_HOLE if mode == "RGBA" else Image.new(mode, (8, 8))
    with pytest.raises(DataError, match=r"^Pairs, example 0: cannot be read \(.*; or let the data set give a tensor$"):
        own(Pairs((image, 0)))


def test_the_file_of_a_part_of_a_folder_is_named(tmp_path):
    folder = own_pictures(tmp_path)
    parts = ConcatDataset([Subset(folder, [0]), Subset(folder, [1])])
    own_place = rf"^ImageFolder, example 1, {re.escape(folder.samples[1][0])}: cannot be read"
    with pytest.raises(DataError, match=own_place):
        own(Subset(parts, [1, 0]))
