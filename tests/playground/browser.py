"""What a reader does with the playground and sees of it."""

import base64
import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qs

import numpy as np
import torch
from numpy.typing import NDArray

import sharmix


class Visit:
    """A page of Playwright's that is open."""

    def __init__(self, page: Any, address: str) -> None:
        self.page, self.address = page, address
        self.complaints: list[str] = []
        self.requests: list[str] = []
        page.on(
            "console", lambda message: message.type in ("error", "warning") and self.complaints.append(message.text)
        )
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
        page.goto(address)
        page.wait_for_function("document.documentElement.dataset.ready")

    def shares(self) -> list[float]:
        """The probabilities that the bars show, to the last digit."""
        self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        return self.page.eval_on_selector_all(
            "#bars .column i", "bars => bars.map((bar) => Number(bar.style.getPropertyValue('--share')))"
        )

    def state(self) -> dict[str, float | list[float]]:
        """What the address tells."""
        self.page.wait_for_selector("html[data-state=settled]", state="attached")
        told = {name: values[0] for name, values in parse_qs(self.page.url.partition("#")[2]).items()}
        logits = [float(logit) for logit in told.pop("logits").split(",")]
        return {"logits": logits, "class": told.pop("class")} | {name: float(value) for name, value in told.items()}

    def drag(self, selector: str, x: float, y: float, hold: bool = False) -> None:
        """From the handle in what is found there, else its middle, to a place in it, in shares of its sides."""
        found = self.page.locator(selector)
        found.scroll_into_view_if_needed()
        inner = found.locator(".handle")
        grip, box = (inner if inner.count() else found).bounding_box(), found.bounding_box()
        self.page.mouse.move(grip["x"] + grip["width"] / 2, grip["y"] + grip["height"] / 2)
        self.page.mouse.down()
        self.page.mouse.move(box["x"] + box["width"] * x, box["y"] + box["height"] * y, steps=4)
        if not hold:
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

    def data(self) -> dict:
        """The bundled logits of digits."""
        return json.loads(self.page.locator("#data").text_content())["digits"]

    def compute(self, script: str, rows: Sequence[NDArray[np.float64]], orders: list[list[float]]) -> list[NDArray]:
        """script(kernel, logits, orders) for each row: arrays of numbers. They travel as bytes."""
        found = self.page.evaluate(
            """async ([script, lengths, base64, orders]) => {
                const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
                const numbers = new Float64Array(bytes.buffer), compute = eval(script), results = [];
                let start = 0;
                lengths.forEach((length, row) => {
                    results.push(compute(playground, Array.from(numbers.slice(start, start + length)), orders[row]));
                    start += length;
                });
                const blob = new Blob([new Float64Array(results.flat())]);
                const url = await new Promise((done) => {
                    const reader = new FileReader();
                    reader.onload = () => done(reader.result);
                    reader.readAsDataURL(blob);
                });
                return [results.map((result) => result.length), url.slice(url.indexOf(",") + 1)];
            }""",
            [script, [len(row) for row in rows], base64.b64encode(np.concatenate(rows).tobytes()).decode(), orders],
        )
        lengths, content = found
        return np.split(np.frombuffer(base64.b64decode(content)), np.cumsum(lengths)[:-1])


def by_python(state: dict) -> list[float]:
    """The map's output at a state of the page."""
    logits = torch.tensor(state["logits"], dtype=torch.float64)
    return sharmix.sharmix(logits, state["q"], state["r"], state["temperature"]).tolist()
