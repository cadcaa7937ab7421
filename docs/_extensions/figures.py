"""Figures become part of their page, so that their ink follows the page's theme: as pictures they could not."""

import re
from html import escape
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

FOLDERS = ("results/",)  # whose SVG files `reporting.look.themed_svg` has written
_ALONE = re.compile(r"<metadata>.*?</metadata>|<style.*?</style>", re.DOTALL)  # for the file that stands alone
_SIZE = re.compile(r' (width|height)="[\d.]+pt"')
_NAME = re.compile(r' id="[a-z.]+_\d+"')  # such as "axes_1": another figure on the page has the same names


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_post_transform(_IncludeFigures)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


class _IncludeFigures(SphinxPostTransform):
    default_priority = 5  # before images are collected into _images
    formats = ("html",)

    def run(self) -> None:
        for image in list(self.document.findall(nodes.image)):
            if image["uri"].startswith(FOLDERS) and image["uri"].endswith(".svg"):
                caption = next((found.astext() for found in image.parent.findall(nodes.caption)), "")
                svg = _included(Path(self.env.srcdir, image["uri"]), image.get("alt") or caption)
                image.replace_self(nodes.raw("", f'<div class="drawing">{svg}</div>', format="html"))


def _included(file: Path, label: str) -> str:
    text = file.read_text("utf-8")
    start, rest = text[text.index("<svg ") :].split(">", 1)
    rest = _NAME.sub("", _ALONE.sub("", rest))
    return f'{_SIZE.sub("", start)} role="img" aria-label="{escape(label)}">{rest}'
