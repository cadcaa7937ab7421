"""Photographs of any format, decoded and cut when they are asked for; the broken ones are left out and named."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from experiments.data.photographs import ImageFiles, Photographs, decoded, measuring_transform, training_transform
from tests.experiments.data.generated import encoded, slope
from tests.experiments.data.support import small, small_data


def pixels(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def in_folder(folder: Path, files: dict[str, bytes], transform: Callable[[Tensor], Tensor]) -> Photographs:
    for name, content in files.items():
        (folder / name).write_bytes(content)
    images = ImageFiles(str(folder), np.array([name.encode() for name in files]))
    return Photographs(images, torch.arange(len(files)), transform)


# Decoding


def test_every_format_gives_the_same_pixels() -> None:
    contents = {
        "RGB": encoded(slope()),
        "CMYK": encoded(slope().convert("CMYK"), "TIFF"),
        "alpha": encoded(slope().convert("RGBA")),
        "palette": encoded(slope().quantize()),
        "palette with alpha": encoded(slope().quantize(), transparency=bytes(range(256))),
        "GIF": encoded(slope().quantize(), "GIF"),
    }
    for name, content in contents.items():
        assert torch.equal(decoded(content), pixels(slope())), name


def test_cmyk_jpeg_gives_nearly_the_same_pixels() -> None:
    difference = decoded(encoded(slope().convert("CMYK"), "JPEG")).int() - pixels(slope())
    assert difference.abs().max() < 8


def test_greyscale_has_three_equal_channels() -> None:
    for mode in ("L", "LA", "1"):
        image = slope().convert(mode)
        assert torch.equal(decoded(encoded(image)), pixels(image.convert("L").convert("RGB"))), mode


def test_sixteen_bits_are_scaled_to_eight() -> None:
    steps = np.arange(0, 65536, 256, dtype=np.uint16).reshape(16, 16)
    image = Image.fromarray(steps)
    assert torch.equal(decoded(encoded(image)), torch.arange(256, dtype=torch.uint8).reshape(16, 16).expand(3, 16, 16))


def test_pixels_of_unknown_range_are_refused() -> None:
    with pytest.raises(ValueError, match="mode F"):
        decoded(encoded(Image.fromarray(np.ones((4, 4), dtype=np.float32)), "TIFF"))


def test_broken_files_are_left_out_and_named(tmp_path: Path) -> None:
    good = encoded(slope(), "JPEG")
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
    photographs = in_folder(tmp_path, {"gone.JPEG": encoded(slope())}, measuring_transform(8, 10))
    (tmp_path / "gone.JPEG").unlink()

    inputs, targets, unreadable = photographs.read(torch.tensor([0]), torch.tensor([7]))

    assert len(inputs) == len(targets) == 0
    assert unreadable == [f"{tmp_path}/gone.JPEG: No such file or directory"]


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
    files = {f"{number}.PNG": encoded(slope(24 + number)) for number in range(12)}
    return in_folder(tmp_path, files, training_transform(8, 0.08))


def read_epoch(examples: Photographs, epoch: int, **batches: int) -> dict[int, Tensor]:
    data = small(small_data(12, classes=12, train=examples), **batches)
    loader = data.train_dataloader()
    loader.sampler.set_epoch(epoch)
    return {int(target): image for batch in loader for target, image in zip(batch.targets, batch.inputs, strict=True)}


def test_pixels_depend_on_seed_epoch_and_index_alone(many: Photographs) -> None:
    here = read_epoch(many, epoch=3)
    in_workers = read_epoch(many, epoch=3, batch_size=5, num_workers=2)
    later = read_epoch(many, epoch=4)
    other_seed = read_epoch(many, epoch=3, seed=22)

    assert here.keys() == in_workers.keys() == set(range(12))
    assert all(torch.equal(here[index], in_workers[index]) for index in here)
    for other in (later, other_seed):
        assert sum(not torch.equal(here[index], other[index]) for index in here) >= 11


def test_reading_leaves_the_global_generator_alone(many: Photographs) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    many.read(torch.arange(12), torch.arange(12))

    assert torch.equal(torch.rand(3), expected)
