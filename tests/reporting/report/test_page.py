"""The page in a real browser, opened from the file system."""

import pytest

from experiments.identity import ROOT
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
    return window.page


def traces(view, figure):
    """What Plotly draws in a figure: for each trace its run and its numbers."""
    read = "trace => ({run: trace.meta?.run, x: [...trace.x], y: [...trace.y]})"
    return view.evaluate(f"id => document.getElementById(id).data.map({read})", figure)


def texts(view, selector):
    return view.locator(selector).all_inner_texts()


def test_the_page_is_small_and_asks_for_nothing_and_its_answers_come_first(page, window, kept):
    assert page.stat().st_size <= 5_000_000
    assert window.requests == []
    given = window.page.locator("h1 ~ *").evaluate_all("all => all.map(one => one.className || one.tagName)")
    assert [name for name in given if name in ("answers", "bar")] == ["answers", "bar"]
    readme = (ROOT / "README.md").read_text("utf-8")
    for card, asked in zip(window.page.locator(".answers li").all(), kept.declaration.questions, strict=True):
        (line,) = [line for line in readme.splitlines() if asked.text in line]
        assert line.startswith(f"- {card.locator('.sign').inner_text()} **{asked.text}**")
        if numbers := card.locator("dd").all_inner_texts():
            assert "({}: theirs {}, ours {})".format(asked.number, *numbers) in line
        assert asked.reason in card.inner_text()


def test_a_question_leads_to_the_claim_that_answers_it(view):
    view.fill("#claim-search", "nothing has these words")
    view.click(".answers a >> nth=1")
    row = view.locator("table.claims tr:target")
    row.locator("th:text-is('1.5-entmax collapses to an accuracy of 0.600')").wait_for()
    assert view.locator("#claim-search").input_value() == ""
    top, bottom = row.evaluate("row => { const { top, bottom } = row.getBoundingClientRect(); return [top, bottom]; }")
    assert 0 < top < bottom < view.viewport_size["height"]


def test_a_difference_leads_to_runs_and_those_that_they_are_compared_with(view, payload):
    row = view.locator("table.claims tr:has(th:text-is('SharMiX (1.25, 1.50) is ahead of sparsemax by 0.2 points'))")
    row.locator("button").dispatch_event("click")
    shown = view.locator("#dialog tbody button").evaluate_all("all => all.map(one => one.dataset.run)")
    assert [payload["runs"][key]["label"] for key in shown[::5]] == ["SharMiX learned (1.25, 1.50)", "sparsemax"]


def test_points_far_from_the_others_stand_at_the_edge_with_their_value(view, payload):
    claims = [one for one in payload["claims"] if one["kind"] == "difference" and one["mean"] is not None]
    low, high = view.evaluate("document.getElementById('differences').layout.xaxis.range")
    outside = [one["published"] for one in claims if not low <= one["published"] <= high]
    assert sum(len(drawn["x"]) for drawn in traces(view, "differences")) == len(claims)
    assert min(one["published"] for one in claims) in outside
    assert 0 < len(outside) <= len(claims) / 4
    for drawn in traces(view, "differences"):
        assert all(low <= value <= high for value in drawn["x"] + drawn["y"])
    notes = view.evaluate("document.getElementById('differences').layout.annotations.map(one => one.text)")
    assert notes == [f"theirs −{abs(value):.1f}" for value in outside]
    assert (
        f"{len(outside)} of {len(payload['claims'])} points stand at the edge of a chart"
        in view.locator("#undrawn").inner_text()
    )
    levels = view.evaluate("document.getElementById('levels').layout")
    assert (levels["annotations"], levels["xaxis"]["range"][0] < 0 < 0.98 < levels["xaxis"]["range"][1]) == ([], True)


def test_claims_are_filtered_by_words_and_by_verdict(view, payload):
    view.select_option("#claim-verdict", "not shown")
    seen = view.locator("table.claims tbody tr:visible")
    assert seen.count() == view.locator("table.claims tbody tr[data-outcome='not shown']").count() > 0
    assert view.locator("#claim-count").inner_text() == f"{seen.count()} of {len(payload['claims'])} numbers"
    view.fill("#claim-search", "sparsemax ahead")
    assert texts(view, "table.claims tbody tr:visible th") == [
        "SharMiX (1.25, 1.50) is ahead of sparsemax by 0.2 points"
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


def test_a_heading_sorts_cells_without_a_number_last(view, payload):
    key = next(key for key, run in payload["runs"].items() if "few_accuracy" in run["metrics"]["test"])
    view.evaluate("key => { location.hash = `#run=${key}`; }", key)
    table = view.locator("#dialog table", has=view.locator("button:text-is('train')"))
    place = 1 + texts(table, "thead th").index("train")
    for step in (1, -1):
        table.locator("button:text-is('train')").click()
        cells = texts(table, f"tbody tr > :nth-child({place})")
        values = [float(cell.replace("−", "-")) for cell in cells if cell != "–"]
        assert cells[len(values) :] == ["–"] * (len(cells) - len(values)) != []
        assert values == sorted(values)[::step]


def test_curves_have_every_number_of_the_shown_runs(view, payload):
    for column in ("test/sparsity", "q", "train/loss"):
        view.select_option("#column", column)
        drawn = traces(view, "curves")
        assert drawn
        for trace in drawn:
            run = payload["runs"][trace["run"]]
            assert trace["y"] == run["curves"][column]
            assert trace["x"] == run["curves"]["epoch"]


def test_configurations_are_toggled_in_all_figures(view, payload):
    softmax = next(key for key, group in payload["groups"].items() if group["label"] == "softmax" and "airline/" in key)
    box = view.locator(f"#chips input[value='{softmax}']")

    def shown(figure):
        return sum(softmax in f"{trace['run']}" for trace in traces(view, figure))

    assert [shown(figure) for figure in FIGURES] == [5, 5, 5]
    box.uncheck()
    assert [shown(figure) for figure in FIGURES] == [0, 0, 0]
    box.check()
    view.click("#none")
    assert traces(view, "curves") == []
    view.click("#all")
    assert len(traces(view, "curves")) == 115


def test_of_many_configurations_those_with_the_default_orders_are_shown_first(view, payload):
    view.get_by_role("button", name="airline", exact=True).click()
    chosen = view.locator("#chips input:checked").evaluate_all("all => all.map(one => one.value)")
    labels = [payload["groups"][key]["label"] for key in chosen]
    assert {"SharMiX fixed (1.25, 1.50)", "SharMiX learned (1.25, 1.50)"} <= set(labels)
    assert len(labels) == len({payload["groups"][key]["activation"] for key in chosen})


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


def test_the_curves_are_a_table_too(view, payload):
    view.evaluate("document.getElementById('numbers').open = true")
    first = view.locator("#numbers tbody tr").first
    first.wait_for()
    assert view.locator("#numbers tbody tr").count() == len(traces(view, "curves"))
    run = payload["runs"][first.locator("button").get_attribute("data-run")]
    values = first.locator("td").evaluate_all("cells => cells.map(cell => Number(cell.dataset.value))")
    assert values == run["curves"]["test/accuracy"]
    view.evaluate("document.getElementById('numbers').open = false")


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
    view.evaluate("document.querySelectorAll('details.kind').forEach(one => { one.open = true; })")
    view.evaluate("document.getElementById('numbers').open = true")
    view.wait_for_selector("#numbers tbody tr")
    assert view.evaluate("document.documentElement.scrollWidth") <= size[0]
    assert severe_findings(view) == []
    assert window.errors == []
