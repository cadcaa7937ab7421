"""Opening encoded images."""

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from PIL import Image


@contextmanager
def no_bombs() -> Iterator[None]:
    """Inside this context Pillow raises an error for an image with too many pixels, instead of a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


def open_image(encoded: bytes) -> Image.Image:
    """An image in one of Pillow's formats, not yet decoded; the first picture of an animated image.

    Raises:
        Exception: the bytes are no image, or the image has too many pixels; the type depends on the format.
    """
    if not encoded:
        raise ValueError("the file is empty")
    with no_bombs():
        return Image.open(io.BytesIO(encoded))
