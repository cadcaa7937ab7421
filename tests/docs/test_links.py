"""Every link of README.md, CONTRIBUTING.md and docs/ to a file of the repository, or to a section of a page."""

import pytest

from tests.docs.pages import MADE_LATER, PAGES, anchors, links, name


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_linked_file_and_section_exists(page):
    for file, section in links(page):
        assert file.exists() or file.name in MADE_LATER, file
        if section and file.suffix == ".md" and not section.startswith("math-section"):
            assert section in anchors(file), f"{file}#{section}"
