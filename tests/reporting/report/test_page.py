"""The page in a real browser, opened from the file system."""

import pytest

from tests.browser import DESKTOP, PHONE, opened, severe_findings

READY = "html[data-ready]"
FIGURES = ("curves", "trade-off", "plane")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def window(browser, page):
    """The page of the kept records, on a desktop; a test leaves what it has opened."""
    with opened(browser, page) as window:
        window.page.wait_for_selector(READY)
        yield window


@pytest.fixture
def view(window):
    """The same, as it looks at first."""
    window.page.evaluate("document.getElementById('dialog').close()")
    window.page.click("#experiments button:text-is('airline')")
    window.page.select_option("#column", "test/accuracy")
    window.page.select_option("#axis", "epoch")
    return window.page


def traces(view, figure):
    """What Plotly draws in a figure: for each trace its run, its numbers, and whether it is seen."""
    read = "trace => ({run: trace.meta?.run, x: [...trace.x], y: [...trace.y], keys: trace.customdata})"
    return view.evaluate(f"id => document.getElementById(id).data.map({read})", figure)


def texts(view, selector):
    return view.locator(selector).all_inner_texts()


def test_the_page_is_small_and_asks_for_nothing_and_its_verdicts_come_first(page, window):
    assert page.stat().st_size <= 5_000_000
    assert window.requests == []
    assert window.page.locator("h1").inner_text() == "What reproduces"
    claims = len(texts(window.page, "table.claims tbody tr th"))
    assert window.page.locator(".lead").inner_text().startswith(f"Of {claims} published numbers that we checked, ")


def test_claims_are_filtered_by_words_and_by_verdict(view):
    view.select_option("#claim-verdict", "reproduces")
    seen = view.locator("table.claims tbody tr:visible")
    assert seen.count() == view.locator("table.claims tbody tr[data-outcome='reproduces']").count() > 0
    assert view.locator("#claim-count").inner_text() == f"{seen.count()} of 75 numbers"
    view.fill("#claim-search", "sparsemax 0.2")
    assert texts(view, "table.claims tbody tr:visible th") == [
        "SharMiX (1.25, 1.50) is best, ahead of sparsemax by 0.2 points"
    ]
    view.fill("#claim-search", "")
    view.select_option("#claim-verdict", "")
    assert view.locator("#claim-count").inner_text() == ""


def test_a_heading_sorts_by_number_up_and_down(view):
    heading = view.locator("#means thead th:nth-child(2)")
    for arrow, step in (("ascending", 1), ("descending", -1)):
        heading.locator("button").click()
        cells = view.locator("#means tbody tr td:nth-child(2)")
        values = cells.evaluate_all("cells => cells.map(cell => Number(cell.dataset.value))")
        assert values == sorted(values)[::step]
        assert heading.get_attribute("aria-sort") == arrow


def test_curves_have_every_number_of_the_shown_runs(view, payload):
    for column, axis in (("test/sparsity", "epoch"), ("q", "training_seconds"), ("train/loss", "steps")):
        view.select_option("#column", column)
        view.select_option("#axis", axis)
        drawn = traces(view, "curves")
        assert drawn
        for trace in drawn:
            run = payload["runs"][trace["run"]]
            assert trace["y"] == run["curves"][column]
            assert trace["x"] == run["curves"][axis]


def test_configurations_are_toggled_in_all_figures(view, payload):
    softmax = next(key for key, group in payload["groups"].items() if group["label"] == "softmax" and "airline/" in key)
    box = view.locator(f"#chips input[value='{softmax}']")

    def shown(figure):
        return sum(softmax in f"{trace['run']} {trace['keys']}" for trace in traces(view, figure))

    assert [shown(figure) for figure in FIGURES] == [5, 1, 5]
    box.uncheck()
    assert [shown(figure) for figure in FIGURES] == [0, 0, 0]
    box.check()
    view.click("#none")
    assert traces(view, "curves") == []
    view.click("#all")
    assert len(traces(view, "curves")) == 115


def test_the_plane_has_the_border_and_the_paths_of_learned_orders(view, payload):
    drawn = traces(view, "plane")
    assert any(
        trace["y"] == pytest.approx([2 - 1 / q for q in trace["x"]]) for trace in drawn if len(trace["x"]) == 101
    )
    learned = [
        trace for trace in drawn if "SharMiX learned" in payload["runs"].get(trace["run"], {"label": ""})["label"]
    ]
    assert learned
    for trace in learned:
        run = payload["runs"][trace["run"]]
        for axis, order in (("x", "q"), ("y", "r")):
            assert trace[axis] == [run["config"]["activation"][order], *run["curves"][order]]


def test_each_figure_is_a_table_too(view, payload):
    for figure in FIGURES:
        view.evaluate("id => document.querySelector(`[data-figure='${id}']`).open = true", figure)
        rows = view.locator(f"[data-figure='{figure}'] tbody tr")
        rows.first.wait_for()
        runs = [
            run for trace in traces(view, figure) for run in ([trace["run"]] if trace["run"] else trace["keys"] or [])
        ]
        assert rows.count() == sum("seed" in str(run) for run in runs)
    first = view.locator("[data-figure='curves'] tbody tr").first
    run = payload["runs"][first.locator("button").get_attribute("data-run")]
    values = first.locator("td").evaluate_all("cells => cells.map(cell => Number(cell.dataset.value))")
    assert values == run["curves"]["test/accuracy"]
    view.evaluate("document.querySelectorAll('.alternative').forEach(details => { details.open = false; })")


def test_a_claim_leads_to_its_runs_and_a_run_to_its_record(view, payload):
    point = "{data: {meta: {claims: true}}, customdata: 4}"
    view.evaluate(f"document.getElementById('levels').emit('plotly_click', {{points: [{point}]}})")
    title = "1.5-entmax collapses to an accuracy of 0.600: entmax (α = 1.5)"
    assert view.locator("#dialog-title").inner_text() == title
    cells = view.locator("#dialog tbody td:nth-child(4)")
    values = cells.evaluate_all("cells => cells.map(cell => Number(cell.dataset.value))")
    first = view.locator("#dialog tbody button").first
    key = first.get_attribute("data-run")
    record = payload["runs"][key]
    runs = payload["groups"][key.rpartition("/")[0]]["runs"]
    assert values == [payload["runs"][name]["metrics"]["test"]["accuracy"] for name in runs]
    first.click()
    said = view.locator("#dialog").inner_text()
    facts = record["command"], record["code"]["commit"], record["environment"]["hardware"]["processor"]
    assert not [fact for fact in (*facts, "optimizer.learning_rate") if fact not in said]
    assert view.evaluate("location.hash") == f"#run={key}"
    view.locator("#dialog .copy").click()
    view.locator("#dialog .copy:text-is('Copied')").wait_for()
    view.click("#back")
    assert view.locator("#dialog tbody button").count() == len(runs)
    view.keyboard.press("Escape")
    assert not view.locator("#dialog").is_visible()


def test_every_experiment_can_be_chosen(view, window, payload):
    for name, experiment in payload["experiments"].items():
        view.click(f"#experiments button:text-is('{name}')")
        assert view.locator("#chips input").count() == len(experiment["groups"])
        assert traces(view, "curves")
    assert window.errors == []


def test_the_keyboard_reaches_a_record_that_anyone_can_read(view):
    view.locator("#means button.number").first.focus()
    view.keyboard.press("Enter")
    assert view.locator("#dialog-title").evaluate("title => title === document.activeElement")
    assert "Repeat it" in view.locator("#dialog").inner_text()
    assert severe_findings(view) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_anyone_can_read_the_page(view, window, size, scheme):
    view.set_viewport_size({"width": size[0], "height": size[1]})
    view.emulate_media(color_scheme=scheme)
    view.evaluate("document.querySelectorAll('details.kind:first-of-type').forEach(one => { one.open = true; })")
    view.evaluate("document.querySelector('[data-figure=plane]').open = true")
    view.wait_for_selector("[data-figure='plane'] tbody tr")
    assert view.evaluate("document.documentElement.scrollWidth") <= size[0]
    assert severe_findings(view) == []
    assert window.errors == []
