// What the page shows: the orders, the logits and the choices. The address keeps it all, so that a link shows the same.

const NAMES = "ABCDEFGHIJKL"; // so many classes have bars to drag; of more, the page draws the probabilities alone
const MOST_CLASSES = 1000, LARGEST_LOGIT = 1000, TRACK = 4; // logits at the ends of a track, unless one is larger
const BOUNDS = {
    q: [1, 2], r: [0.75, 2.25], temperature: [0.05, 4], cover: [80, 99],
    get logit() { return [-state.reach, state.reach]; },
    get class() { return [0, state.logits.length - 1]; },
};
const FIRST = { q: 1.25, r: 1.5, temperature: 1, logits: [2.2, 1.7, 1, 0.4, -0.2, -0.9, -1.6, -2.4], chosen: 1, cover: 90 };
const SETTLED_AFTER = 180; // milliseconds without a change

const state = { ...structuredClone(FIRST), reach: TRACK, said: {} }; // `said`: sentences about typed values, by the id of their element
const panels = []; // each has `inputs`, the names of what it shows, and `draw`; and `place`, the element it is drawn in
const outOfSight = new Set(); // places that wait until nothing moves
let frameIsDue = false, settling = 0, isMoving = true;

function within(bound, value) {
    const [low, high] = BOUNDS[bound];
    return Math.min(high, Math.max(low, value));
}

function rounded(value, digits = 2) {
    return Number(value.toFixed(digits)) + 0; // + 0 makes -0 a plain 0
}

function isConcave(q, r) {
    return r >= 2 - 1 / q - 1e-12;
}

function isMany(count = state.logits.length) {
    return count > NAMES.length;
}

function nameOf(index, count = state.logits.length) {
    return isMany(count) ? String(index) : NAMES[index];
}

function grouped(count) {
    return count.toLocaleString("en");
}

function reachOf(logits) {
    return Math.ceil(Math.max(TRACK, ...logits.map(Math.abs)));
}

function setNumberOfClasses(count) {
    const logits = state.logits.slice(0, count);
    while (logits.length < count) logits.push(rounded(within("logit", Math.min(...logits) - 0.5)));
    update({ logits });
}

function setLogit(index, value) {
    const logits = state.logits.map((logit, place) => (place === index ? rounded(within("logit", value)) : logit));
    update({ logits, reach: state.reach }); // the track keeps its length while it is dragged on
}

// Changes the state; the page follows in the next frame.
function update(changes) {
    Object.assign(state, { said: {} }, changes.logits && { reach: reachOf(changes.logits) }, changes);
    state.chosen = Math.min(state.chosen, state.logits.length - 1);
    isMoving = true;
    document.documentElement.dataset.state = "moving";
    clearTimeout(settling);
    settling = setTimeout(record, SETTLED_AFTER);
    drawSoon();
}

function drawSoon() {
    if (!frameIsDue) requestAnimationFrame(draw);
    frameIsDue = true;
}

function draw() {
    frameIsDue = false;
    const { q, r, temperature, logits } = state;
    const p = kernel.map(logits, q, r, temperature);
    const view = { ...state, p, alive: p.filter((share) => share > 0).length, isMoving };
    for (const panel of panels) {
        if (isMoving && outOfSight.has(panel.place)) continue;
        const key = JSON.stringify(panel.inputs.map((name) => view[name]));
        if (key === panel.drawn) continue;
        panel.drawn = key;
        panel.draw(view);
    }
}

function watchSight() {
    const watcher = new IntersectionObserver((entries) => {
        for (const { target, isIntersecting } of entries) {
            if (isIntersecting) outOfSight.delete(target);
            else outOfSight.add(target);
        }
        drawSoon();
    });
    for (const place of new Set(panels.map((panel) => panel.place).filter(Boolean))) watcher.observe(place);
}

function drawAll() {
    for (const panel of panels) panel.drawn = null;
    draw();
}

// Draws what takes longer, after the last of many changes.
function settle() {
    isMoving = false;
    draw();
}

// After a reader's changes: also writes the address, and a sentence for screen readers.
function record() {
    settle();
    history.replaceState(null, "", `#${address()}`);
    document.documentElement.dataset.state = "settled";
    document.getElementById("settled").textContent = summary(kernel.map(state.logits, state.q, state.r, state.temperature));
}

function summary(p) {
    const alive = p.filter((share) => share > 0).length, zeros = p.length - alive;
    if (!zeros) return `All ${grouped(p.length)} classes keep a probability.`;
    return `${grouped(alive)} of ${grouped(p.length)} classes ${alive === 1 ? "keeps" : "keep"} a probability; `
        + `${grouped(zeros)} ${zeros === 1 ? "is" : "are"} exactly zero.`;
}

function address() {
    const { q, r, temperature, logits, chosen, cover } = state;
    return `q=${q}&r=${r}&temperature=${temperature}&logits=${logits.join(",")}&class=${nameOf(chosen)}&cover=${cover}`;
}

// The state that an address tells, and what in it is ignored or changed; what is missing is as in the first view.
function stateFrom(hash) {
    const told = new URLSearchParams(hash.replace(/^#/, "")), read = structuredClone(FIRST), faults = [];
    for (const [name, text] of told) {
        const { value, fault } = name === "logits" ? readLogits(text) : ["q", "r", "temperature", "cover"].includes(name) ? readNumber(name, text) : {};
        if (value !== undefined) read[name] = value;
        else if (!fault && name !== "class") faults.unshift(shortened(name));
        if (fault) faults.push(name === "logits" ? `logits: ${fault}` : fault);
    }
    const count = read.logits.length, name = told.get("class");
    const chosen = read.logits.findIndex((_, index) => nameOf(index, count) === name);
    if (chosen >= 0) read.chosen = chosen;
    else if (name !== null) faults.push(`class: “${shortened(name)}” is none of the ${grouped(count)} classes`);
    return { ...read, reach: reachOf(read.logits), ignored: faults.length ? `Ignored in the address: ${faults.join("; ")}.` : "" };
}

// The allowed number that is nearest to the written one, and what is wrong with the written one.
function readNumber(name, text) {
    const written = text.trim() ? Number(text) : Number.NaN, [low, high] = BOUNDS[name];
    if (!Number.isFinite(written)) return { fault: `${name}: ${text && `“${shortened(text)}” is `}no number` };
    const value = within(name, written);
    return { value, fault: value !== written && `${name} = ${written} became ${value} (${low} to ${high} is allowed)` };
}

// The logits in a text such as "1, 2", "[1e-3; -2]" or "tensor([1., 2.], device='cuda:0')", or what is wrong with it.
function readLogits(text) {
    const plain = text.replace(/^\s*(\w+\s*=\s*)?[a-z_.]+\(/i, "").replace(/,\s*\w+=[^,)]*/g, "").replaceAll("−", "-");
    const words = plain.split(/[\s,;[\](){}]+/).filter(Boolean), value = words.map(Number), count = grouped(words.length);
    const wrong = value.findIndex((logit) => !(Math.abs(logit) <= LARGEST_LOGIT));
    if (wrong >= 0) return { fault: `“${shortened(words[wrong])}” is ${Number.isFinite(value[wrong]) ? `beyond ±${grouped(LARGEST_LOGIT)}` : "no number"}` };
    if (words.length < 2) return { fault: `${count} ${count === "1" ? "number is" : "numbers are"} too few` };
    return words.length > MOST_CLASSES ? { fault: `${count} numbers are too many` } : { value };
}

function shortened(text) {
    return text.length > 20 ? `${text.slice(0, 20)}…` : text;
}
