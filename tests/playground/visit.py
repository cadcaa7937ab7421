"""What a reader does with the playground and sees of it."""

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qs

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import sharmix

EXACT = 1e-12


class Visit:
    """The playground in a page of Playwright's."""

    def __init__(self, page: Any) -> None:
        self.page = page
        page.wait_for_function("document.documentElement.dataset.ready")

    def shares(self) -> list[float]:
        """The probabilities that the bars, or the plot of many classes, show to the last digit."""
        self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        return self.page.locator("#bars").evaluate(
            r"""bars => {
                const columns = [...bars.querySelectorAll(".column i")];
                const shares = columns.map((column) => Number(column.style.getPropertyValue("--share")));
                for (const path of bars.querySelectorAll(".plot path"))
                    for (const [, place, share] of path.getAttribute("d").matchAll(/M(\d+)[^hV]*(?:h1|V([^M]+))/g))
                        shares[place] = Number(share ?? 0);
                return shares;
            }"""
        )

    def state(self) -> dict[str, float | list[float]]:
        """What the address tells."""
        self.page.wait_for_selector("html[data-state=settled]", state="attached")
        told = {name: values[0] for name, values in parse_qs(self.page.url.partition("#")[2]).items()}
        logits = [float(logit) for logit in told.pop("logits").split(",")]
        return {"logits": logits, "class": told.pop("class")} | {name: float(value) for name, value in told.items()}

    def drag(self, selector: str, x: float, y: float) -> None:
        """From the handle in what is found there, else its middle, to a place in it, in shares of its sides."""
        found = self.page.locator(selector)
        found.scroll_into_view_if_needed()
        inner = found.locator(".handle")
        grip, box = (inner if inner.count() else found).bounding_box(), found.bounding_box()
        self.page.mouse.move(grip["x"] + grip["width"] / 2, grip["y"] + grip["height"] / 2)
        self.page.mouse.down()
        self.page.mouse.move(box["x"] + box["width"] * x, box["y"] + box["height"] * y, steps=4)
        self.page.mouse.up()

    def go(self, fragment: str) -> None:
        """Change the address's fragment, as a pasted link does."""
        self.page.evaluate(
            """(fragment) => new Promise((done) => {
                addEventListener("hashchange", done, { once: true });
                location.hash = fragment;
            }).then(() => {})""",
            fragment,
        )
        self.page.wait_for_selector("html[data-state=settled]", state="attached")

    def type(self, field: str, text: str) -> str:
        """Type into a field and press Enter; returns what the field's panel says of it."""
        place = self.page.locator(f"#{field}")
        if not place.is_visible():
            self.page.get_by_text("Paste logits").click()
        place.fill(text)
        place.press("Enter")
        self.page.wait_for_selector("html[data-state=settled]", state="attached")
        return self.page.locator(".panel", has=place).locator(".said").text_content()

    def data(self) -> dict:
        """The bundled logits of digits."""
        return json.loads(self.page.locator("#data").text_content())["digits"]

    def shows_what_python_computes(self) -> dict[str, float | list[float]]:
        """Check the bars, and return the state."""
        state = self.state()
        assert self.shares() == pytest.approx(by_python(state), abs=EXACT)
        return state

    def compute(self, script: str, rows: Sequence[NDArray[np.float64]], orders: list[list[float]]) -> list[NDArray]:
        """script(kernel, logits, orders) for each row: arrays of numbers. They travel as JSON, without rounding."""
        found = self.page.evaluate(
            """([script, given]) => {
                const compute = eval(script), { rows, orders } = JSON.parse(given);
                return JSON.stringify(rows.map((row, place) => compute(playground, row, orders[place])));
            }""",
            [script, json.dumps({"rows": [row.tolist() for row in rows], "orders": orders})],
        )
        return [np.array(one) for one in json.loads(found)]


def by_python(state: dict) -> list[float]:
    """The map's output at a state of the page."""
    logits = torch.tensor(state["logits"], dtype=torch.float64)
    return sharmix.sharmix(logits, state["q"], state["r"], state["temperature"]).tolist()
