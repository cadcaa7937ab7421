// Small pieces that several panels are made of.

const isDark = () => document.documentElement.dataset.theme === "dark";
let isPrinting = false;

// Colours from one surviving class to all of them: the lightest where all survive, on a dark page the darkest.
const SHADES = {
    light: ["#12405f", "#1f7a8c", "#62b6a0", "#bfe0b4", "#f6f2df"],
    dark: ["#d8f3c4", "#6cc5a8", "#2a8a96", "#1f5670", "#1a2c3c"],
};

function shade(alive, classes) {
    const stops = SHADES[isDark() && !isPrinting ? "dark" : "light"].map(channels);
    const share = isMany(classes) ? Math.log(alive) / Math.log(classes) : (alive - 1) / (classes - 1);
    const place = share * (stops.length - 1), low = Math.min(Math.floor(place), stops.length - 2);
    return stops[low].map((channel, index) => Math.round(channel + (stops[low + 1][index] - channel) * (place - low)));
}

function channels(colour) {
    return [1, 3, 5].map((start) => Number.parseInt(colour.slice(start, start + 2), 16));
}

// Black or white, whichever is easier to read on a colour.
function inkOver([red, green, blue]) {
    return 0.3 * red + 0.59 * green + 0.11 * blue > 135 ? "#10181d" : "#ffffff";
}

function percent(share, digits = 1) {
    if (share === 0) return "0";
    const least = 10 ** -digits;
    if (100 * share < least) return `<${least}%`;
    return `${(100 * share).toFixed(share < 0.0995 ? digits : 0)}%`;
}

function signed(value, digits = 2) {
    if (value === 0) return "0";
    const text = Math.abs(value).toFixed(digits);
    if (Number(text) === 0) return "≈0"; // not to be taken for one
    return `${value < 0 ? "−" : "+"}${text}`;
}

// Writes a text only if it has changed: writing the same one again would cost a layout, too.
function say(target, text) {
    if (target.textContent !== String(text)) target.textContent = text;
}

function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
}

function shape(tag, attributes, text = "") {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.textContent = text;
    return made;
}

// Children of a parent, as many as there are things to show.
function fit(parent, count, make) {
    if (parent.querySelector(".plot")) parent.replaceChildren();
    while (parent.children.length > count) parent.lastElementChild.remove();
    while (parent.children.length < count) parent.append(make(parent.children.length));
    return parent.children;
}

// Many classes as one line each, as long as its value; a class at exactly zero has a mark of another colour on the axis.
function drawPlot(parent, values, show) {
    const kinds = { zeros: (value) => value === 0, rises: (value) => value > 0, falls: (value) => value < 0 };
    if (!parent.querySelector(".plot")) {
        const made = shape("svg", { class: "plot", preserveAspectRatio: "none", "aria-hidden": "true" });
        for (const kind of Object.keys(kinds)) made.append(shape("path", { class: kind, transform: "scale(1 -1)" }));
        parent.replaceChildren(made, ...(show ? [element("small")] : []));
    }
    const [svg, caption] = parent.children, count = values.length;
    const low = Math.min(0, ...values), high = Math.max(0, ...values) || 1, foot = 0.012 * (high - low); // of the line of zeros
    svg.setAttribute("viewBox", `0 ${-high} ${count} ${high - low + foot}`);
    Object.values(kinds).forEach((isOfKind, place) => {
        const line = (value, index) => (value === 0 ? `M${index} ${-foot / 2}h1` : `M${index + 0.5} ${-Math.sign(value) * foot}V${value}`);
        svg.children[place].setAttribute("d", values.map((value, index) => (isOfKind(value) ? line(value, index) : "")).join(""));
        svg.children[place].setAttribute("stroke-width", place ? Math.max(0.8, count / 350) : foot);
    });
    if (!show) return;
    const others = values.map((_, index) => index).filter((index) => values[index]);
    const largest = others.sort((a, b) => Math.abs(values[b]) - Math.abs(values[a])).slice(0, 3).map((index) => `class ${index} ${show(values[index])}`);
    say(caption, `Classes 0 to ${count - 1}. ${largest.length ? `Largest: ${largest.join(", ")}` : "All are zero"}.`);
}

// Probabilities as a row of small bars.
function drawMini(parent, p) {
    if (isMany(p.length)) return drawPlot(parent, p);
    const bars = fit(parent, p.length, () => element("i"));
    p.forEach((share, index) => {
        bars[index].className = share === 0 ? "zero" : "";
        bars[index].style.setProperty("--share", share);
    });
}

// One bar a class, up for positive and down for negative numbers.
function drawSigned(parent, values, chosen, most) {
    if (isMany(values.length)) return drawPlot(parent, values, (value) => signed(value, 3));
    const columns = fit(parent, values.length, (index) =>
        element("div", {}, element("i", { class: "axis" }), element("b"), element("span", {}, NAMES[index])));
    values.forEach((value, index) => {
        const [axis, number] = columns[index].children;
        const kind = value === 0 ? "zero" : value > 0 ? "rises" : "falls";
        columns[index].className = index === chosen ? `${kind} chosen` : kind;
        axis.style.setProperty("--value", -value / most);
        say(number, signed(value, values.length > 9 ? 1 : 2));
    });
}

// The pointer's place in an element, in shares of its sides, while it is held down there.
function onDrag(target, move) {
    const tell = (event) => {
        const box = target.getBoundingClientRect();
        move((event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height);
    };
    target.addEventListener("pointerdown", (event) => {
        if (event.button || event.target.closest("button")) return;
        event.preventDefault();
        target.setPointerCapture(event.pointerId);
        (target.querySelector(".handle") ?? target).focus({ preventScroll: true });
        tell(event);
    });
    target.addEventListener("pointermove", (event) => {
        if (target.hasPointerCapture(event.pointerId)) tell(event);
    });
}

// Arrow keys as steps: (right, up), ten times as long with the page keys or Shift.
function onArrows(target, step) {
    const steps = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1], PageUp: [0, 10], PageDown: [0, -10] };
    target.addEventListener("keydown", (event) => {
        if (!steps[event.key]) return;
        event.preventDefault();
        const [right, up] = steps[event.key], times = event.shiftKey ? 10 : 1;
        step(right * times, up * times);
    });
}
