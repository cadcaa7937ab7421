"""What the pages link to or name is there: files, sections, the files of the architecture's picture, the tutorials."""

import re
from xml.etree import ElementTree

import pytest

from tests.docs.pages import DOCS, MADE_LATER, PAGES, ROOT, TUTORIALS, anchors, links, name


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_linked_file_and_section_exists(page):
    for file, section in links(page):
        assert file.exists() or file.name in MADE_LATER, file
        if section and file.suffix == ".md" and not section.startswith("math-section"):
            assert section in anchors(file), f"{file}#{section}"


def test_every_file_in_the_picture_of_the_architecture_exists():
    texts = ElementTree.parse(DOCS / "architecture.svg").getroot().iter("{http://www.w3.org/2000/svg}text")
    named = re.findall(r"[\w/]+(?:\.py|\.json|\.md|/)(?!\w)", " ".join(text.text for text in texts))
    places = [ROOT, *(ROOT / part for part in ("sharmix", "sharmix/_operators", "experiments"))]
    missing = {name for name in named if not any((place / name).exists() for place in places)}
    assert missing == {"record.json"}  # which a run leaves


def test_every_tutorial_is_in_the_table_of_their_first_page():
    text = (TUTORIALS / "index.md").read_text()
    listed = re.findall(r"^\| \[.*\]\((\w+)\.md\) \|", text, re.MULTILINE)
    assert sorted(listed) == sorted(page.stem for page in TUTORIALS.glob("*.md") if page.name != "index.md")
