// What the page shows: the orders, the logits and the choices. The address keeps it all, so that a link shows the same.

const NAMES = "ABCDEFGHIJKL";
const BOUNDS = { q: [1, 2], r: [0.75, 2.25], temperature: [0.05, 4], logit: [-4, 4], cover: [80, 99] };
const FIRST = { q: 1.25, r: 1.5, temperature: 1, logits: [2.2, 1.7, 1, 0.4, -0.2, -0.9, -1.6, -2.4], chosen: 1, cover: 90 };
const SETTLED_AFTER = 180; // milliseconds without a change

const state = structuredClone(FIRST);
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

function setNumberOfClasses(count) {
    const logits = state.logits.slice(0, count);
    while (logits.length < count) logits.push(rounded(within("logit", Math.min(...logits) - 0.5)));
    update({ logits });
}

function setLogit(index, value) {
    update({ logits: state.logits.map((logit, place) => (place === index ? rounded(within("logit", value)) : logit)) });
}

// Changes the state; the page follows in the next frame.
function update(changes) {
    Object.assign(state, changes);
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

// After the last of many changes: what takes longer.
function settle() {
    isMoving = false;
    draw();
}

// And where a reader made them: the address, and a sentence for screen readers.
function record() {
    settle();
    history.replaceState(null, "", `#${address()}`);
    document.documentElement.dataset.state = "settled";
    document.getElementById("settled").textContent = summary(kernel.map(state.logits, state.q, state.r, state.temperature));
}

function summary(p) {
    const alive = p.filter((share) => share > 0).length, zeros = p.length - alive;
    if (!zeros) return `All ${p.length} classes keep a probability.`;
    return `${alive} of ${p.length} classes ${alive === 1 ? "keeps" : "keep"} a probability; ${zeros} ${zeros === 1 ? "is" : "are"} exactly zero.`;
}

function address() {
    const { q, r, temperature, logits, chosen, cover } = state;
    return `q=${q}&r=${r}&temperature=${temperature}&logits=${logits.join(",")}&class=${NAMES[chosen]}&cover=${cover}`;
}

// The state that an address tells; what is missing or wrong in it is as in the first view.
function stateFrom(hash) {
    const told = new URLSearchParams(hash.replace(/^#/, "")), read = structuredClone(FIRST);
    for (const name of ["q", "r", "temperature", "cover"]) {
        const value = Number.parseFloat(told.get(name));
        if (Number.isFinite(value)) read[name] = within(name, value);
    }
    const logits = (told.get("logits") ?? "").split(",").map(Number.parseFloat);
    if (logits.length >= 2 && logits.length <= NAMES.length && logits.every(Number.isFinite))
        read.logits = logits.map((logit) => within("logit", logit));
    const chosen = NAMES.indexOf(told.get("class") || " ");
    if (chosen >= 0) read.chosen = Math.min(chosen, read.logits.length - 1);
    return read;
}
