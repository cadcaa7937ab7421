"""What a reader can do on the page, and that it shows what Python computes."""

import base64
import contextlib
import io

import pytest
import torch

import sharmix
from tests.playground.visit import EXACT, by_python

pytestmark = pytest.mark.slow
FIRST = torch.tensor([2.2, 1.7, 1, 0.4, -0.2, -0.9, -1.6, -2.4], dtype=torch.float64)  # logits of the first view


def test_first_view_shows_zeros_pins_and_regions(visit):
    seen = visit()
    shares = seen.shares()
    assert shares == pytest.approx(sharmix.sharmix(FIRST, 1.25, 1.5).tolist(), abs=EXACT)
    assert shares.count(0) == 3
    assert seen.page.locator(".bar.zero .share").all_text_contents() == ["0"] * 3
    assert seen.page.locator(".pin").all_text_contents() == ["softmax", "sparsemax", "1.5-entmax", "Gaussian", "Rényi"]
    assert {"all 8", "2", "3"} <= set(seen.page.locator(".regions span").all_text_contents())
    assert "5 of 8 classes keep a probability; 3 are exactly zero." in seen.page.locator("#survivors").text_content()


def test_plane_is_coloured_by_the_number_of_survivors(visit):
    """Two places of one colour have one number of survivors, and two of different colours have two."""
    seen = visit()
    seen.page.wait_for_function("document.querySelector('#plane canvas').width === 241")
    places = [(row, column) for row in range(0, 241, 24) for column in range(0, 241, 24)]
    colours = seen.page.evaluate(
        """places => {
            const { data } = document.querySelector("#plane canvas").getContext("2d").getImageData(0, 0, 241, 241);
            return places.map(([row, column]) => {
                const start = 4 * (241 * row + column);
                return String(data.slice(start, start + 3));
            });
        }""",
        places,
    )
    sizes = [
        int((sharmix.sharmix(FIRST, 1 + column / 240, 2.25 - 1.5 * row / 240) > 0).sum()) for row, column in places
    ]
    assert len(set(zip(colours, sizes, strict=True))) == len(set(colours)) == len(set(sizes)) > 4


@pytest.mark.parametrize(
    ("selector", "x", "y"),
    [
        ("[aria-label='Logit of class A']", 0.5, 0.8),
        ("#plane", 0.9, 0.3),
        ("#plane", 0.8, 0.95),
        (".simplex", 0.86, 0.8),
    ],
)
def test_dragging_changes_p_as_python_says(visit, selector, x, y):
    seen = visit()
    before = seen.shares()
    seen.drag(selector, x, y)
    state = seen.shows_what_python_computes()
    assert seen.shares() != before
    moved = {"#plane": state["q"] > 1.7, ".simplex": len(state["logits"]) == 3 and state["logits"][1] > 2}
    assert moved.get(selector, -3.5 < state["logits"][0] < -2)


def test_pins_set_their_orders(visit):
    seen = visit()
    for name, q, r in (("softmax", 1, 1), ("sparsemax", 2, 2), ("1.5-entmax", 1.5, 1.5), ("Rényi", 1.5, 1)):
        seen.page.get_by_role("button", name=f"{name}: ").click()
        state = seen.shows_what_python_computes()
        assert (state["q"], state["r"]) == (q, r)


def test_every_control_is_reached_and_works_by_keyboard(visit):
    seen = visit("logits=1,0.5,0,-1")
    page = seen.page
    wanted = page.eval_on_selector_all(
        "button:not([hidden]), input:not([type=radio]), [role=slider], pre", "all => all.length"
    )
    reached = set()
    for _ in range(wanted + 10):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("[...document.querySelectorAll('*')].indexOf(document.activeElement)"))
    assert len(reached) >= wanted

    steps = {
        "[aria-label='Logit of class B']": ("ArrowUp", lambda state: state["logits"][1] == pytest.approx(0.6)),
        "#plane .handle": ("ArrowDown", lambda state: state["r"] == pytest.approx(1.49)),
        "#q": ("ArrowRight", lambda state: state["q"] == pytest.approx(1.26)),
        "#temperature": ("ArrowLeft", lambda state: state["temperature"] == pytest.approx(0.95)),
        "#cover": ("ArrowRight", lambda state: state["cover"] == 91),
        "input[name=chosen] >> nth=1": ("ArrowRight", lambda state: state["class"] == "C"),
        "#classes": ("ArrowRight", lambda state: len(state["logits"]) == 5),
        ".simplex .handle": ("ArrowUp", lambda state: len(state["logits"]) == 3),
    }
    for selector, (key, holds) in steps.items():
        page.locator(selector).focus()
        page.keyboard.press(key)
        assert holds(seen.shows_what_python_computes()), selector


def test_presets_tell_their_story(visit):
    seen = visit()
    buttons = seen.page.locator("#presets button")
    stories = set()
    for index in range(buttons.count()):
        buttons.nth(index).click()
        seen.shows_what_python_computes()
        pressed = seen.page.locator("#presets button[aria-pressed=true]").all_text_contents()
        assert pressed == [buttons.nth(index).text_content()]
        stories.add(seen.page.locator("#story").text_content())
    assert len(stories) == buttons.count() == 6


def test_preset_of_the_jump_shows_two_maxima_and_where_it_jumps(visit):
    seen = visit()
    seen.page.get_by_role("button", name="The jump").click()
    state = seen.state()
    assert seen.page.locator("#jump .maxima li").count() == 2
    sentence = seen.page.locator("#jump .look").text_content()
    low, high = (float(number.rstrip("%.")) / 100 for number in sentence.split() if "%" in number)
    at = float(sentence.split("passes ")[1].split(",")[0].replace("+", ""))
    below, above = ([at + side, *state["logits"][1:]] for side in (-0.002, 0.002))
    shares = [by_python(state | {"logits": logits})[0] for logits in (below, above)]
    assert shares == pytest.approx([low, high], abs=0.02)
    assert high - low > 0.3


def test_address_holds_the_state(visit):
    seen = visit()
    seen.drag("[aria-label='Logit of class C']", 0.5, 0.1)
    seen.drag("#plane", 0.77, 0.41)
    for control, key in (("#temperature", "ArrowRight"), ("#cover", "ArrowLeft"), ("#classes", "ArrowLeft")):
        seen.page.locator(control).focus()
        seen.page.keyboard.press(key)
    seen.page.locator("input[name=chosen] >> nth=3").check()
    state = seen.state()
    again = visit(seen.page.url.partition("#")[2])
    assert again.shares() == seen.shares()
    assert again.page.locator("#cover").input_value() == "89"
    assert again.page.locator("#cover-value").text_content() == "89 %"
    assert again.page.locator("input[name=chosen] >> nth=3").is_checked()
    again.page.locator("#q").press("ArrowLeft")
    again.page.locator("#q").press("ArrowRight")
    assert again.state() == state


@pytest.mark.parametrize(
    ("fragment", "said"),
    [
        ("q=1.5&logits=1,-30,2.5&class=C", ""),
        ("jump", ""),
        (
            "q=7&logits=1,x,3&foo=2",
            "Ignored in the address: foo; q = 7 became 2 (1 to 2 is allowed); logits: “x” is no number.",
        ),
        ("r=x&cover=1000", "r: “x” is no number; cover = 1000 became 99 (80 to 99 is allowed)"),
        ("class=Z", "class: “Z” is none"),
        ("logits=" + "9," * 1001, "logits: 1,001 numbers are too many."),
        ("%&toString=1", "Ignored in the address: toString; %."),
    ],
)
def test_what_the_page_ignores_in_an_address_it_says(visit, fragment, said):
    first, later = visit(fragment), visit()
    later.go(f"#{fragment}")
    for seen in (first, later):
        shown = seen.page.locator("#ignored").text_content()
        assert said in shown
        assert bool(said) == bool(shown)
        assert sum(seen.shares()) == pytest.approx(1)
    assert first.shares() == later.shares()


def test_typed_numbers_are_shown_in_their_bounds(visit):
    seen = visit()
    typed = [
        ("q", "1.3333", 1.3333),
        ("r", "9", 2.25),
        ("r", "9", 2.25),
        ("temperature", "0.001", 0.05),
        ("q", "", 1.3333),
    ]
    for name, text, value in typed:
        said = seen.type(f"{name}-value", text)
        assert seen.shows_what_python_computes()[name] == value
        assert float(seen.page.locator(f"#{name}-value").input_value()) == value
        low, high = (seen.page.locator(f"#{name}").get_attribute(end) for end in ("min", "max"))
        clamped = f"{name} = {text} became {value} ({low} to {high} is allowed)."
        assert said == ("" if text == str(value) else clamped if text else "q: no number.")
    seen.page.locator("#temperature").press("ArrowRight")
    seen.state()
    assert seen.page.locator("#plane-said").text_content() == ""


@pytest.mark.parametrize(
    "text",
    [
        "1, -30; 2.5",
        "1\n-3e1\t2.5\n",
        "[[1.0, -30, 2.5]]",
        "1. −30. 2.5",
        "tensor([1.0000e+00, -3.0000e+01, 2.5000], device='cuda:0', dtype=torch.float64, grad_fn=<AddBackward0>)",
        "z = np.array([  1. , -30. ,   2.5], dtype=float32)",
    ],
)
def test_pasted_logits_become_bars(visit, text):
    seen = visit("temperature=3")
    assert seen.type("paste", text) == ""
    state = seen.shows_what_python_computes()
    assert (state["logits"], state["class"]) == ([1, -30, 2.5], "C")
    seen.drag("[aria-label='Logit of class B']", 0.5, 0.1)
    assert 20 < seen.shows_what_python_computes()["logits"][1] <= 30


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("1, two, 3", "“two” is no number"),
        ("[0.5, nan]", "“nan” is no number"),
        ("1 2 ... 3", "“...” is no number"),
        ("tensor([1., -inf])", "“-inf” is no number"),
        ("0 1e4", "“1e4” is beyond ±1,000"),
        ("tensor(3.)", "1 number is too few"),
        ("0 " * 1001, "1,001 numbers are too many"),
    ],
)
def test_pasted_text_that_cannot_be_read_changes_nothing(visit, text, named):
    seen = visit()
    before = seen.shares()
    assert seen.type("paste", text) == f"{named}; 2 to 1,000 numbers from −1,000 to 1,000 are allowed."
    assert seen.shares() == before


def test_thousand_pasted_logits_are_on_every_panel(visit):
    logits = (2 * torch.randn(1000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))).tolist()
    seen = visit("q=1.2&r=1.3")
    assert seen.type("paste", str(logits)) == ""
    state = seen.shows_what_python_computes()
    p = torch.tensor(by_python(state))
    left = int((p > 0).sum())
    assert state["logits"] == logits
    assert 10 < left < 100
    sentence = f"{left} of 1,000 classes keep a probability; {1000 - left} are exactly zero."
    assert sentence in seen.page.locator("#survivors").text_content()
    assert f"Largest: class {p.argmax()} {p.max():.0%}," in seen.page.locator("#bars").text_content()
    assert state["class"] == str(p.argmax().item())

    assert seen.type("class-value", "5000") == "class = 5000 became 999 (0 to 999 is allowed)."
    loss = sharmix.fenchel_young_loss(torch.tensor([logits], dtype=torch.float64), torch.tensor([999]), 1.2, 1.3)
    assert seen.page.locator("#loss output").text_content() == f"{loss.item():.4f}"
    assert seen.page.locator("#maps td.number").first.text_content() == str(left)
    seen.drag("#plane", 0.6, 0.9)
    seen.shows_what_python_computes()
    again = visit(seen.page.url.partition("#")[2])
    assert again.shares() == seen.shares()
    assert again.page.locator("#class-value").input_value() == "999"
    again.drag(".simplex", 0.86, 0.8)
    assert len(again.shows_what_python_computes()["logits"]) == 3


def test_copied_python_prints_what_is_shown(visit):
    seen = visit(
        "#q=1.6&r=1.8&temperature=1.35&logits=1.5,0.25,-0.5,0.75&class=C",
        permissions=["clipboard-read", "clipboard-write"],
    )
    seen.page.get_by_role("button", name="Copy as Python").click()
    seen.page.wait_for_function("document.getElementById('copied').textContent")
    code = seen.page.evaluate("navigator.clipboard.readText()")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {})
    p, loss = printed.getvalue().rsplit(" ", 1)
    assert eval(p) == pytest.approx(seen.shares(), abs=EXACT)
    assert f"{float(loss):.4f}" == seen.page.locator("#loss output").text_content()


def test_maps_side_by_side_are_those_of_the_library(visit):
    seen = visit("q=1.4&r=1.7&temperature=0.8&logits=1.5,0.25,-0.5,0.75&class=D")
    z, label = torch.tensor([1.5, 0.25, -0.5, 0.75], dtype=torch.float64), torch.tensor([3])
    orders = {"SharMiX": (1.4, 1.7), "softmax": (1, 1), "1.5-entmax": (1.5, 1.5), "sparsemax": (2, 2)}
    expected = {
        name: (sharmix.sharmix(z, q, r, 0.8), sharmix.fenchel_young_loss(z[None], label, q, r, 0.8))
        for name, (q, r) in (orders | {"2-normmax": (2, 1.5)}).items()
    }
    tau = (0.5 * FIRST[0] - sharmix.entmax(FIRST)[0].sqrt()).item()
    relu_loss = 0.8 * sharmix.alpha_relu_loss(z[None] / 0.8, label, tau=tau)
    expected["α-ReLU"] = (sharmix.alpha_relu(z / 0.8, tau=tau), relu_loss)
    rows = {row.locator("th").text_content(): row for row in seen.page.locator("#maps tbody tr").all()}
    for name, (p, loss) in expected.items():
        numbers = [str(int((p > 0).sum())), f"{p.sum().item():.2f}", f"{loss.item():.3f}"]
        assert rows[name].locator("td.number").all_text_contents() == numbers
        bars = rows[name].locator(".mini i")
        shown = bars.evaluate_all("all => all.map((bar) => Number(bar.style.getPropertyValue('--share')))")
        assert shown == pytest.approx(p.clamp_max(1).tolist(), abs=EXACT)


def test_prediction_sets_are_those_of_the_predictor(visit):
    seen = visit()
    data = seen.data()

    def part(name):
        integers = torch.frombuffer(bytearray(base64.b64decode(data[name]["logits"])), dtype=torch.int16)
        labels = torch.tensor([int(label) for label in data[name]["labels"]])
        return integers.reshape(-1, 10).double() * data["unit"], labels

    for q, r, cover in ((1.5, 1.5, 90), (1.25, 1.5, 95), (2, 2, 99), (1.1, 2, 80)):
        seen.go(f"#q={q}&r={r}&cover={cover}")
        predictor = sharmix.conformal.SupportPredictor(q, r).calibrate(*part("calibration"), cover / 100)
        logits, labels = part("test")
        sets = predictor.sets(logits)
        covered = sets.gather(-1, labels[:, None]).double().mean()
        facts = seen.page.locator("#sets .facts").text_content()
        assert f"hold the true one {100 * covered:.1f} % of the time" in facts
        assert f"with {sets.sum(-1).double().mean():.2f} classes on average" in facts
        if predictor.temperature > 1e-6:
            assert f"Temperature {predictor.temperature:.3f}:" in facts
        shown = seen.page.eval_on_selector_all(
            ".digit .set", "sets => sets.map((set) => [...set.children].map((one) => Number(one.textContent)))"
        )
        assert shown == [own.nonzero()[:, 0].tolist() for own in sets[: len(shown)]]


def test_sets_say_why_there_are_none(visit):
    seen = visit()
    for fragment in ("#q=1&r=1.5", "#q=1.75&r=1.25"):
        seen.go(fragment)
        assert "Sets need" in seen.page.locator("#sets .facts").text_content()
        assert seen.page.locator(".digits").is_hidden()


def test_a_digit_goes_to_the_bars(visit):
    seen = visit("q=1.5&r=1.5")
    seen.page.locator(".digit >> nth=1").click()
    assert len(seen.shows_what_python_computes()["logits"]) == 10
    shown = seen.page.locator(".digit >> nth=1").locator(".set > *").all_text_contents()
    assert [str(label) for label, share in enumerate(seen.shares()) if share > 0] == shown
