"""Speed, accessibility, narrow screens and paper."""

import math
import re

import pytest

from tests.browser import DESKTOP, severe_findings

pytestmark = pytest.mark.slow
NARROW = (360, 740)
A4_WIDTH = 703  # pixels between the margins
MANY = "r=1.3&logits=" + ",".join(f"{5 * math.sin(3 * index):.3f}" for index in range(1000))


def test_orders_of_a_thousand_classes_move_fluently(visit):
    """From a frame's begin to its layout; the best of many, for a machine that does other things too."""
    seen = visit(MANY)
    frames = seen.page.evaluate(
        """async () => {
            const slider = document.getElementById("q"), frames = [];
            for (slider.value = 1.1; slider.value < 1.9; slider.stepUp()) {
                slider.dispatchEvent(new Event("input"));
                frames.push(await new Promise((done) => requestAnimationFrame((begin) => {
                    document.body.getBoundingClientRect();
                    done(performance.now() - begin);
                })));
            }
            return frames;
        }"""
    )
    print(f"1,000 classes: {min(frames):.0f} ms a frame")
    assert len(frames) == 80
    assert min(frames) < 50


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, NARROW], ids=["desktop", "phone"])
def test_axe_finds_nothing_serious(visit, dark, size):
    assert severe_findings(visit(dark=dark, size=size).page) == []


@pytest.mark.parametrize("fragment", ["", "logits=" + ",".join(["-2.35"] * 12), MANY])
def test_phone_needs_no_sideways_scrolling(visit, fragment):
    seen = visit(fragment, size=NARROW)
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= 360
    assert seen.page.locator("#maps .scroll").evaluate("box => box.scrollWidth - box.clientWidth") <= 0


def test_still_where_less_motion_is_asked_for(visit):
    seen = visit(reduced_motion="reduce")
    durations = seen.page.eval_on_selector_all("*", "all => all.map((one) => getComputedStyle(one).transitionDuration)")
    assert set(durations) == {"0s"}


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_prints_on_two_pages(visit, dark):
    seen = visit("q=1.75&r=1.25&logits=1.34,0,0,0,0,0,0,0,0,0", dark=dark)
    seen.page.wait_for_timeout(300)
    paper = seen.page.pdf(prefer_css_page_size=True)
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b", paper)) <= 2
    seen.page.set_viewport_size({"width": A4_WIDTH, "height": 1000})
    seen.page.emulate_media(media="print")
    outside = seen.page.evaluate(
        """() => [...document.querySelectorAll(".panel")].flatMap((panel) => {
            const box = panel.getBoundingClientRect();
            return [...panel.querySelectorAll("*")].filter((one) => {
                const own = one.getBoundingClientRect();
                const isOut = own.right > box.right + 1 || own.left < box.left - 1 || own.bottom > box.bottom + 1;
                return own.width && isOut;
            }).map((one) => one.outerHTML.slice(0, 80));
        })"""
    )
    assert outside == []
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= A4_WIDTH
