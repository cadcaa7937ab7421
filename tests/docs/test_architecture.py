"""docs/architecture.md: every file that it or its picture names exists, and its walks name what is really called."""

import re
from xml.etree import ElementTree

import pytest

from tests.docs.pages import DOCS, ROOT

PAGE = DOCS / "architecture.md"
SVG = "{http://www.w3.org/2000/svg}"
PICTURE = ElementTree.parse(DOCS / "architecture.svg").getroot()


def test_every_file_in_the_picture_exists():
    named = re.findall(
        r"[\w/]+(?:\.py|\.json|\.md|/)(?!\w)", " ".join(text.text for text in PICTURE.iter(f"{SVG}text"))
    )
    places = [ROOT, *(ROOT / part for part in ("sharmix", "sharmix/_operators", "experiments"))]
    missing = {name for name in named if not any((place / name).exists() for place in places)}
    assert missing == {"record.json"}  # which a run leaves


@pytest.mark.parametrize(
    "walk", ["What happens in `sharmix.sharmix(z)`", "What happens in `python run.py experiment=cifar100`"]
)
def test_each_step_of_a_walk_names_a_file(walk):
    section = PAGE.read_text("utf-8").partition(f"## {walk}\n")[2].partition("\n## ")[0]
    steps = re.split(r"\n\d+\. ", section)[1:]
    assert len(steps) >= 8
    assert all("../" in step or "`backward()`" in step for step in steps)
