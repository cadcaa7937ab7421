"""The site in a real browser, opened from the file system: as wide as the window, quiet, and readable by all."""

import pytest

from tests.browser import DESKTOP, PHONE, opened, severe_findings

pytestmark = pytest.mark.slow

PAGES = {
    "the first page": "docs/index.html",
    "the API": "docs/api/losses.html",
    "wide tables": "results/tables/verdicts.html",
    "formulas": "docs/math.html",
    "the index of the API": "docs/api/index.html",
    "times": "results/benchmarks/maps.html",
    "a tutorial": "docs/tutorials/swap_cross_entropy.html",
    "the gallery": "docs/gallery/index.html",
    "README": "README.html",
}

WIDER_THAN_ITS_BOX = (
    "all => all.filter(box => box.scrollWidth > box.clientWidth).map(box => box.innerText.slice(0, 60))"
)

SIZES_OF_HEADINGS = """["h1", "h2", "h3"].map(name => document.querySelector(`article ${name}`)).filter(Boolean)
    .map(heading => parseFloat(getComputedStyle(heading).fontSize))"""

WANTED = {  # what people search for, and a page that they want
    "resume": "docs/suite",
    "label smoothing": "docs/api/criteria",
    "GPU": "docs/install",
    "sweep": "docs/how_to/on_a_cluster",
    "export": "docs/export",
    "early stopping": "docs/suite",
    "checkpoint": "docs/suite",
    "multi-GPU": "docs/how_to/on_a_cluster",
    "install": "docs/install",
    "ONNX": "docs/export",
    "temperature": "docs/api/maps",
    "attention head": "docs/tutorials/sparse_attention",
    "own data": "docs/how_to/own_data_set",
    "imbalanced": "docs/my_data",
    "multi-label": "docs/my_data",
    "HuggingFace": "docs/my_data",
    "cite": "README",
    "table 1": "results/tables/table1",
    "sparsemax_loss": "docs/api/losses",
}


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_a_page_opens_quietly_and_fits_the_window(site, browser, page, size, dark):
    with opened(browser, site / page, size=size, dark=dark) as shown:
        assert shown.page.evaluate("document.documentElement.scrollWidth") <= size[0]
        sizes = shown.page.evaluate(SIZES_OF_HEADINGS)
        assert sizes == sorted({*sizes}, reverse=True)
        assert shown.errors == []
        assert [address for address in shown.requests if not address.startswith(("file:", "data:"))] == []
        assert severe_findings(shown.page) == []  # last: axe asks for style sheets, which the console counts as errors


def test_the_theme_that_a_reader_chooses_holds_on_every_page(site, browser):
    def ground(page):
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    with opened(browser, site / "docs" / "index.html") as shown:
        light = ground(shown.page)
        shown.page.get_by_role("button", name="Dark theme").click()
        dark = ground(shown.page)
        assert dark != light
        shown.page.goto((site / "docs" / "math.html").as_uri())
        assert ground(shown.page) == dark
        ink = shown.page.evaluate("getComputedStyle(document.querySelector('h1')).color")
        shown.page.goto((site / "docs" / "figures.html").as_uri())
        assert shown.page.evaluate("getComputedStyle(document.querySelector('.drawing svg')).fill") == ink
        shown.page.get_by_role("button", name="Dark theme").click()
        assert ground(shown.page) == light


@pytest.mark.parametrize("words", WANTED)
def test_plain_words_find_the_wanted_page_among_the_first_three(site, browser, words):
    with opened(browser, site / "docs" / "index.html") as shown:
        search(shown.page, words)
        found = shown.page.locator("#search-results li a").evaluate_all("all => all.map(a => a.getAttribute('href'))")
    assert WANTED[words] in [link.partition(".html")[0] for link in found[:3]]


@pytest.mark.parametrize("storage", [True, False], ids=["with storage", "without"])
def test_a_hit_opens_where_the_most_of_its_words_are(site, browser, storage):
    with opened(browser, site / "docs" / "index.html") as shown:
        search(shown.page, "sampler adjustment")
        if not storage:  # as where each file has one of its own
            shown.page.evaluate("localStorage.clear()")
        shown.page.locator("#search-results").get_by_text("My data").click()
        shown.page.wait_for_function("scrollY > 0")
        place = shown.page.locator("p", has_text="WeightedRandomSampler").bounding_box()
        assert 0 <= place["y"] <= DESKTOP[1] - place["height"]
        assert shown.errors == []


def search(page, words):
    page.get_by_placeholder("Search").fill(words)
    page.keyboard.press("Enter")
    page.get_by_text("Search finished").wait_for()


def test_no_column_of_results_and_no_line_of_code_is_cut_on_a_desktop(site, browser):
    pages = {*site.glob("*.html"), *site.glob("docs/**/*.html"), *site.glob("results/**/*.html")}
    with opened(browser, site / "docs" / "index.html") as shown:
        cut = {}
        for file in sorted(pages - {site / "index.html"}):  # which leads to the first page
            shown.page.goto(file.as_uri())
            if found := shown.page.locator(".table-wrapper, pre").evaluate_all(WIDER_THAN_ITS_BOX):
                cut[file.relative_to(site).as_posix()] = found
    assert cut == {}
