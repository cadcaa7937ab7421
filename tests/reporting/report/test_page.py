"""The page in a real browser, opened from the file system."""

import pytest

from reporting.report.page import LARGEST
from tests.browser import DESKTOP, PHONE, opened, severe_findings
from tests.reporting.report.outputs import payload_of

READY = "html[data-ready]"
pytestmark = pytest.mark.medium


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


@pytest.fixture(scope="module")
def view_at_work(browser, page_at_work):
    """The page of runs at work, opened by the address of a run."""
    with opened(browser, page_at_work, fragment="run=digits/0123456789ab/seed-1") as (view, errors, requests):
        view.wait_for_selector(READY)
        yield view
        assert not errors + requests


@pytest.fixture(scope="module")
def payload(page):
    return payload_of(page)


def traces(view, figure):
    """What Plotly draws in a figure: for each trace its run, its numbers, and whether it is seen."""
    read = "trace => ({run: trace.meta?.run, x: [...trace.x], y: [...trace.y], keys: trace.customdata})"
    return view.evaluate(f"id => document.getElementById(id).data.map({read})", figure)


def texts(view, selector):
    return view.locator(selector).all_inner_texts()


def test_the_page_is_small_and_asks_for_nothing_and_makes_no_error(page, window):
    assert page.stat().st_size <= LARGEST
    assert window.errors == []
    assert window.requests == []


def test_the_verdicts_come_first(view):
    assert view.locator("h1").inner_text() == "What reproduces"
    claims = len(texts(view, "table.claims tbody tr th"))
    assert view.locator(".lead").inner_text().startswith(f"Of {claims} published numbers that we checked, ")


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
    view.evaluate("document.getElementById('table3').open = true")
    column = "#table3 tbody tr td:nth-child(3)"
    heading = view.locator("#table3 thead th:nth-child(3) button")
    for arrow, step in (("ascending", 1), ("descending", -1)):
        heading.click()
        values = view.locator(column).evaluate_all("cells => cells.map(cell => Number(cell.dataset.value))")
        assert values == sorted(values)[::step]
        assert view.locator("#table3 thead th:nth-child(3)").get_attribute("aria-sort") == arrow
    view.locator("#table3 thead th:nth-child(2) button").click()
    theirs = view.locator("#table3 tbody tr td:nth-child(2)").evaluate_all(
        "cells => cells.map(cell => cell.dataset.value)"
    )
    assert theirs[-9:] == [""] * 9  # rows that the paper does not have stand last


def test_rows_are_filtered(view):
    view.evaluate("document.getElementById('table1').open = true")
    view.fill("#table1 .row-filter", "learned 1.50")
    assert texts(view, "#table1 tbody tr:visible th") == [
        "SharMiX learned (1.25, 1.50)",
        "SharMiX learned (1.50, 1.50)",
    ]
    view.fill("#table1 .row-filter", "")


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
    figures = ("curves", "trade-off", "plane")

    def shown(figure):
        return sum(softmax in f"{trace['run']} {trace['keys']}" for trace in traces(view, figure))

    before = [shown(figure) for figure in figures]
    assert before == [5, 1, 5]
    box.uncheck()
    assert [shown(figure) for figure in figures] == [0, 0, 0]
    box.check()
    assert [shown(figure) for figure in figures] == before
    view.click("#none")
    assert traces(view, "curves") == []
    view.click("#all")
    assert len(traces(view, "curves")) == 115


def test_a_point_tells_its_value(view, payload):
    view.click("#none")
    view.locator("#chips input").first.check()
    x, y = view.evaluate(
        """() => {
            const plot = document.getElementById("curves");
            plot.scrollIntoView({block: "center"});
            const {xaxis, yaxis} = plot._fullLayout, [trace] = plot.data, at = plot.getBoundingClientRect();
            return [at.left + xaxis._offset + xaxis.d2p(trace.x[2]), at.top + yaxis._offset + yaxis.d2p(trace.y[2])];
        }"""
    )
    view.mouse.move(x - 3, y)
    view.mouse.move(x, y)
    said = view.locator("#curves .hovertext").first.text_content()
    drawn = [payload["runs"][trace["run"]] for trace in traces(view, "curves")]
    (run,) = [run for run in drawn if f"{run['label']}, seed {run['seed']}epoch 3" in said]  # of several near the mouse
    assert float(said.partition("epoch 3: ")[2]) == pytest.approx(run["curves"]["test/accuracy"][2], abs=5e-6)


def test_the_plane_has_the_border_and_the_paths_of_learned_orders(view, payload):
    drawn = traces(view, "plane")
    assert any(
        trace["y"] == pytest.approx([2 - 1 / q for q in trace["x"]]) for trace in drawn if len(trace["x"]) == 101
    )
    learned = [
        trace
        for trace in drawn
        if trace["run"] and payload["runs"][trace["run"]]["label"].startswith("SharMiX learned")
    ]
    assert learned
    for trace in learned:
        run = payload["runs"][trace["run"]]
        assert trace["x"] == [run["config"]["activation"]["q"], *run["curves"]["q"]]
        assert trace["y"] == [run["config"]["activation"]["r"], *run["curves"]["r"]]


def test_each_figure_is_a_table_too(view, payload):
    for figure in ("curves", "trade-off", "plane"):
        view.evaluate("id => document.querySelector(`[data-figure='${id}']`).open = true", figure)
        rows = view.locator(f"[data-figure='{figure}'] tbody tr")
        rows.first.wait_for()
        drawn = [
            run
            for trace in traces(view, figure)
            for run in ([trace["run"]] if trace["run"] else trace["keys"] or [])
            if "seed" in str(run)
        ]
        assert rows.count() == len(drawn)
    first = view.locator("[data-figure='curves'] tbody tr").first
    run = payload["runs"][first.locator("button").get_attribute("data-run")]
    values = first.locator("td").evaluate_all("cells => cells.map(cell => Number(cell.dataset.value))")
    assert values == run["curves"]["test/accuracy"]
    view.evaluate("document.querySelectorAll('.alternative').forEach(details => { details.open = false; })")


def test_a_number_leads_to_its_runs_and_a_run_to_its_record(view, payload):
    view.evaluate("document.getElementById('table1').open = true")
    number = view.locator("#table1 tbody tr:has(th:text-is('sparsemax')) button.number").first
    key = number.get_attribute("data-runs")
    number.click()
    assert "sparsemax" in view.locator("#dialog-title").inner_text()
    values = view.locator("#dialog tbody td:nth-child(4)").evaluate_all(
        "cells => cells.map(cell => Number(cell.dataset.value))"
    )
    runs = [payload["runs"][name] for name in payload["groups"][key]["runs"]]
    assert values == [run["metrics"]["test"]["accuracy"] for run in runs]
    view.locator("#dialog tbody button").first.click()
    record, said = runs[0], view.locator("#dialog").inner_text()
    for expected in (
        record["command"],
        record["code"]["commit"],
        record["environment"]["hardware"]["processor"],
        "optimizer.learning_rate",
    ):
        assert str(expected) in said
    assert view.evaluate("location.hash") == f"#run={key}/seed-{record['seed']}"
    view.locator("#dialog .copy").click()
    view.locator("#dialog .copy:text-is('Copied')").wait_for()
    view.click("#back")
    assert view.locator("#dialog tbody button").count() == len(runs)
    view.keyboard.press("Escape")
    assert not view.locator("#dialog").is_visible()


def test_a_point_of_the_claims_opens_its_runs(view):
    point = "{data: {meta: {claims: true}}, customdata: 4}"
    view.evaluate(f"document.getElementById('levels').emit('plotly_click', {{points: [{point}]}})")
    assert (
        view.locator("#dialog-title").inner_text() == "1.5-entmax collapses to an accuracy of 0.600: entmax (α = 1.5)"
    )


def test_every_experiment_can_be_chosen(view, window, payload):
    for name, experiment in payload["experiments"].items():
        view.click(f"#experiments button:text-is('{name}')")
        assert view.locator("#chips input").count() == len(experiment["groups"])
        assert traces(view, "curves")
    assert window.errors == []


def test_dark_and_light_are_switched(view):
    ground = "getComputedStyle(document.body).backgroundColor"
    light = view.evaluate(ground)
    view.click("#theme")
    assert view.evaluate(ground) != light
    assert view.evaluate("document.getElementById('curves').data[0].line.color") == "#FFFFFF"
    view.click("#theme")
    assert view.evaluate(ground) == light


def test_the_keyboard_reaches_a_record(view):
    view.locator("#means button.number").first.focus()
    view.keyboard.press("Enter")
    assert view.locator("#dialog-title").evaluate("title => title === document.activeElement")
    assert "Repeat it" in view.locator("#dialog").inner_text()


def test_an_address_leads_to_a_record(view_at_work):
    assert "stopped after epoch 2" in view_at_work.locator("#dialog").inner_text()
    view_at_work.click("#close")
    view_at_work.wait_for_function("location.hash === ''")  # the browser sends the event `close` a moment later


def test_an_address_leads_to_an_experiment(view):
    view.evaluate("location.hash = '#experiment=copy'")
    view.locator("#experiments [aria-pressed='true']:text-is('copy')").wait_for()


def test_an_address_that_leads_nowhere_changes_nothing(browser, page):
    for fragment in ("run=%", "run=constructor", "experiment=constructor"):
        with opened(browser, page, fragment=fragment) as (view, errors, _):
            view.wait_for_selector(READY)
            assert not view.locator("#dialog").is_visible()
            assert errors == []


def test_runs_at_work_are_shown_as_they_stand(view_at_work, page_at_work):
    lead = view_at_work.locator(".lead").inner_text()
    assert lead.startswith("3 of 8 runs have finished, 1 failed, 2 stopped, 2 open; about ")
    table = view_at_work.locator("#progress table").inner_text()
    assert "epoch 2: it diverged" in table
    assert "2 of 3" in table
    assert f"--outputs {page_at_work.parent / 'outputs'}" in view_at_work.locator("#progress code").first.inner_text()
    assert len(traces(view_at_work, "curves")) == 4


LOOKS = {
    "desktop, light": (DESKTOP, "light"),
    "desktop, dark": (DESKTOP, "dark"),
    "phone, dark": (PHONE, "dark"),
    "phone, light": (PHONE, "light"),
}


@pytest.mark.parametrize("look", LOOKS)
def test_anyone_can_read_the_page(view, window, look):
    size, scheme = LOOKS[look]
    view.set_viewport_size({"width": size[0], "height": size[1]})
    view.emulate_media(color_scheme=scheme)
    view.evaluate(
        "document.querySelectorAll('details.kind:first-of-type, #table4').forEach(one => { one.open = true; })"
    )
    view.evaluate("document.querySelector('[data-figure=plane]').open = true")
    view.wait_for_selector("[data-figure='plane'] tbody tr")
    assert view.evaluate("document.documentElement.scrollWidth") <= size[0]
    assert severe_findings(view) == []
    assert window.errors == []


def test_anyone_can_read_a_record(view):
    view.locator("#means button.number").first.click()
    assert severe_findings(view) == []


@pytest.mark.parametrize("look", ["desktop, light", "phone, dark"])
def test_anyone_can_read_how_runs_stand(view_at_work, look):
    size, scheme = LOOKS[look]
    view_at_work.set_viewport_size({"width": size[0], "height": size[1]})
    view_at_work.emulate_media(color_scheme=scheme)
    assert view_at_work.evaluate("document.documentElement.scrollWidth") <= size[0]
    assert severe_findings(view_at_work) == []
