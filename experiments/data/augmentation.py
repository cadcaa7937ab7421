"""Random changes of training images. They work on whole batches, but each image has its own seed."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from experiments.data.randomness import uniform


@dataclass(frozen=True)
class CropAndFlip:
    """A random crop of the zero-padded image, with the image's own size, mirrored with probability one half.

    Args:
        padding: pixels added at each side, ≥ 0.
    """

    padding: int

    def __call__(self, images: Tensor, seeds: Tensor) -> Tensor:
        """The changed images [n, channels, height, width]; `seeds` int64 [n] come from `sample_seeds`."""
        height, width = images.shape[-2:]
        choices = 2 * self.padding + 1
        down, right = ((uniform(seeds, stream) * choices).long() for stream in (0, 1))
        windows = pad(images, (self.padding,) * 4).unfold(2, height, 1).unfold(3, width, 1)
        cropped = windows[torch.arange(len(images), device=images.device), :, down, right]
        mirrored = uniform(seeds, 2) < 0.5
        return torch.where(mirrored[:, None, None, None], cropped.flip(-1), cropped)
