"""Opening encoded images."""

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from PIL import Image


@contextmanager
def no_bombs() -> Iterator[None]:
    """Within it Pillow refuses an image of more pixels than it calls safe, of which it would only warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


def open_image(encoded: bytes) -> Image.Image:
    """An image in one of Pillow's formats, not yet decoded; of an animated one, its first picture.

    Raises:
        Exception: the bytes are no image, or of too many pixels; what is raised depends on the format.
    """
    if not encoded:
        raise ValueError("the file is empty")
    with no_bombs():
        return Image.open(io.BytesIO(encoded))
