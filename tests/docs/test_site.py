"""What `make site` builds: every link leads somewhere, and formulas are set."""

import re
from functools import cache
from urllib.parse import unquote, urlsplit

import pytest
from bs4 import BeautifulSoup

from tests.docs.pages import DOCS, MADE_LATER, PUBLIC_NAME, ROOT

LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "object": "data"}


@cache
def parsed(file):
    return BeautifulSoup(file.read_text(encoding="utf-8"), "lxml")


@cache
def anchors(file):
    return {tag["id"] for tag in parsed(file).find_all(id=True)}


def links(file, attributes):
    return {
        tag[attribute]
        for name, attribute in attributes.items()
        for tag in parsed(file).find_all(name)
        if tag.get(attribute)
    }


def leads_nowhere(site, page, link):
    path, anchor = (unquote(part) for part in (urlsplit(link).path, urlsplit(link).fragment))
    target = (page.parent / path).resolve() if path else page
    if target.is_relative_to(site) and target.relative_to(site).as_posix() in MADE_LATER:
        return False
    return not target.is_file() or bool(anchor and target.suffix == ".html" and anchor not in anchors(target))


@pytest.mark.slow
def test_the_first_page_opens_and_its_doors_are_there(site):
    target = re.search(r"url=(\S+)\"", (site / "index.html").read_text())[1]
    doors = [tag["href"] for tag in parsed(site / target).select("a.sd-stretched-link")]
    assert {"using.html", "reproducing.html", "extending.html"} <= {*doors}


@pytest.mark.slow
def test_every_link_leads_somewhere(site):
    nowhere = set()
    for page in site.rglob("*.html"):
        for link in links(page, {"a": "href", **LOADED}):
            if not re.match(r"(https?|mailto|data):", link) and leads_nowhere(site, page, link):
                nowhere.add((page.relative_to(site).as_posix(), link))
    assert nowhere == set()


@pytest.mark.slow
def test_nothing_is_loaded_from_a_network(site):
    for page in site.rglob("*.html"):
        styles = " ".join(map(str, parsed(page).find_all("style")))
        assert {link for link in links(page, LOADED) if re.match(r"(https?:)?//", link)} == set(), page
        assert not re.search(r"url\(\s*['\"]?(https?:)?//|@import", styles), page
    for sheet in site.rglob("*.css"):
        found = re.search(r"url\(\s*['\"]?(https?:)?//|@import\s+(url\()?['\"]?(https?:)?//", sheet.read_text())
        assert not found, sheet


@pytest.mark.slow
def test_the_sidebar_names_each_study_once_and_neither_results_nor_readme(site):
    shown = [link["href"] for link in parsed(site / "docs" / "studies.html").select(".sidebar-tree a.reference")]
    studies = [f"studies/{file.stem}.html" for file in sorted((DOCS / "studies").glob("*.md"))]
    assert [address for address in shown if "studies/" in address or "results/" in address] == studies
    assert "../README.html" not in shown


@pytest.mark.slow
def test_what_theirs_and_ours_measure_stands_once_above_both(site):
    upper, lower = parsed(site / "results" / "tables" / "table1.html").table.thead("tr")
    titles = [(cell.get_text(strip=True), cell.get("colspan"), cell.get("rowspan")) for cell in upper("th")]
    measured = [(name, "2", "1") for name in ("accuracy", "− softmax", "macro-F1", "sparsity")]
    assert titles == [("activation", None, "2"), *measured]
    assert [cell.get_text(strip=True) for cell in lower("th")] == [
        *["theirs", "ours", "theirs", "ours [95%]"],
        *["theirs", "ours"] * 2,
    ]


@pytest.mark.slow
@pytest.mark.parametrize("page", ["maps", "losses", "modules", "gates", "criteria"])
def test_a_real_formula_is_in_the_place_of_the_typed_one(site, page):
    shown = parsed(site / "docs" / "api" / f"{page}.html")
    names = PUBLIC_NAME.findall((DOCS / "api" / f"{page}.md").read_text())
    assert [formula.find_previous("dt", id=True)["id"] for formula in shown.select("div.mathematics")] == names
    assert shown.select(".formula") == []


def test_every_figure_is_on_its_page():
    drawn = {file.name for file in (ROOT / "results" / "figures").glob("*.svg")}
    assert {*re.findall(r"results/figures/(\w+\.svg)", (ROOT / "docs" / "figures.md").read_text())} == drawn
