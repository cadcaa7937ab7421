"""Random changes of images, each image's own."""

import torch
from torch.nn.functional import pad

from experiments.data.randomness import sample_seeds
from experiments.data.small_images import CropAndFlip

IMAGES = torch.randint(1, 256, (50, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
SEEDS = sample_seeds(21, 0, torch.arange(50))


def possible(image: torch.Tensor, padding: int) -> list[torch.Tensor]:
    padded = pad(image, (padding,) * 4)
    shifts = range(2 * padding + 1)
    crops = [padded[:, down : down + 8, right : right + 8] for down in shifts for right in shifts]
    return [*crops, *(crop.flip(-1) for crop in crops)]


def test_every_crop_and_mirror_image_comes_up_alike() -> None:
    image = IMAGES[:1]
    seeds = sample_seeds(0, 0, torch.arange(5000))
    changed = CropAndFlip(2)(image.expand(5000, -1, -1, -1), seeds)
    times = [(changed == crop).all((1, 2, 3)).sum().item() for crop in possible(image[0], 2)]
    assert sum(times) == 5000
    assert min(times) > 60  # 100 each, and a standard deviation of 10
    assert max(times) < 140


def test_an_image_is_changed_alike_in_any_batch() -> None:
    whole = CropAndFlip(4)(IMAGES, SEEDS)
    assert torch.equal(CropAndFlip(4)(IMAGES[7:9], SEEDS[7:9]), whole[7:9])
    assert not torch.equal(CropAndFlip(4)(IMAGES, sample_seeds(21, 1, torch.arange(50))), whole)
