"""Random changes of training images, whole batches at a time, each image's own by its seed."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from experiments.data.randomness import uniform


@dataclass(frozen=True)
class CropAndFlip:
    """A random crop of the zero-padded image, of its own size, and a mirror image every other time.

    Args:
        padding: pixels added at each side, ≥ 0.
    """

    padding: int

    def __call__(self, images: Tensor, seeds: Tensor) -> Tensor:
        """The changed images [n, channels, height, width]; `seeds` int64 [n], of `sample_seeds`."""
        height, width = images.shape[-2:]
        choices = 2 * self.padding + 1
        down, right = ((uniform(seeds, stream) * choices).long() for stream in (0, 1))
        windows = pad(images, (self.padding,) * 4).unfold(2, height, 1).unfold(3, width, 1)
        cropped = windows[torch.arange(len(images), device=images.device), :, down, right]
        mirrored = uniform(seeds, 2) < 0.5
        return torch.where(mirrored[:, None, None, None], cropped.flip(-1), cropped)
