"""The one reader of pictures, by the rules of data/README.md."""

import io
from pathlib import Path

from PIL import Image, ImageOps

from experiments.files import read_file

LARGER_RANGES = ("I", "F")  # the first letter of Pillow's modes I, I;16 and F


def read_picture(file: str | Path) -> Image.Image:
    """The picture in a file, as `picture_of`."""
    return picture_of(read_file(Path(file)))


def picture_of(content: bytes) -> Image.Image:
    """The picture in the content of a file, upright, in RGB; an OSError says why a picture is refused."""
    image = Image.open(io.BytesIO(content))
    # The further pictures of a phone's photograph (MPO) are previews and depths.
    if getattr(image, "is_animated", False) and image.format != "MPO":
        raise OSError(f"it has {image.n_frames} pictures; save the one that counts")
    ImageOps.exif_transpose(image, in_place=True)
    return in_rgb(image)


def in_rgb(image: Image.Image) -> Image.Image:
    """An image in RGB; an OSError if RGB cannot show it as it is."""
    if image.mode.startswith(LARGER_RANGES):  # Pillow would cut each value at 255
        raise OSError(f"its mode {image.mode} can have values above 255; save it with eight bits a channel")
    if image.has_transparency_data and image.convert("RGBA").getchannel("A").getextrema()[0] < 255:
        raise OSError("some of its pixels are transparent; save it on the background that it is to have")
    return image.convert("RGB")
