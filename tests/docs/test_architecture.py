"""docs/architecture.md: every file that its picture names exists."""

import re
from xml.etree import ElementTree

from tests.docs.pages import DOCS, ROOT

SVG = "{http://www.w3.org/2000/svg}"
PICTURE = ElementTree.parse(DOCS / "architecture.svg").getroot()


def test_every_file_in_the_picture_exists():
    named = re.findall(
        r"[\w/]+(?:\.py|\.json|\.md|/)(?!\w)", " ".join(text.text for text in PICTURE.iter(f"{SVG}text"))
    )
    places = [ROOT, *(ROOT / part for part in ("sharmix", "sharmix/_operators", "experiments"))]
    missing = {name for name in named if not any((place / name).exists() for place in places)}
    assert missing == {"record.json"}  # which a run leaves
