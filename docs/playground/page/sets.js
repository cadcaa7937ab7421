// Prediction sets: the temperature is calibrated on some digits, and the supports of others are counted.

const SHOWN = 16; // digits with a picture
const LABELS = 10;
const MARGIN = 1e-7, LEAST_TEMPERATURE = 2 ** -126; // as in sharmix/conformal.py

// The k-th smallest of n scores, k = ⌈(n + 1) cover⌉, a little enlarged; `cover` in percent.
function conformalQuantile(scores, cover) {
    const rank = Math.ceil(((scores.length + 1) * cover) / 100);
    if (rank > scores.length) return Infinity;
    return scores.toSorted((a, b) => a - b)[rank - 1] * (1 + MARGIN);
}

function rowsOf(numbers) {
    return Array.from({ length: numbers.length / LABELS }, (_, row) => numbers.slice(LABELS * row, LABELS * (row + 1)));
}

function calibrated({ q, r, cover }) {
    const { logits, labels } = digits.calibration;
    const scores = rowsOf(logits).map((row, index) => kernel.entryTemperature(row, labels[index], q, r));
    return Math.max(LEAST_TEMPERATURE, conformalQuantile(scores, cover));
}

// Which classes are in the set of each test digit.
function predictionSets({ q, r }, temperature) {
    const p = kernel.map(digits.test.logits, q, r, temperature, LABELS);
    return rowsOf(p).map((row) => row.flatMap((share, label) => (share > 0 ? [label] : [])));
}

function coverageOf(sets) {
    return sets.filter((set, index) => set.includes(digits.test.labels[index])).length / sets.length;
}

function drawDigit(canvas, pixels) {
    const image = new ImageData(8, 8);
    [...pixels].forEach((ink, index) => image.data.set([20, 28, 34, 17 * Number.parseInt(ink, 16)], 4 * index));
    canvas.style.background = "#f4f1e8";
    canvas.getContext("2d").putImageData(image, 0, 0);
}

// Shows the logits of a test digit in the bars, at the calibrated temperature.
function showDigit(index) {
    const logits = rowsOf(digits.test.logits)[index], middle = (Math.max(...logits) + Math.min(...logits)) / 2;
    const temperature = isCalibratable(state) ? rounded(within("temperature", calibrated(state)), 3) : state.temperature;
    update({ logits: logits.map((logit) => rounded(logit - middle)), chosen: digits.test.labels[index], temperature });
    document.getElementById("bars-title").scrollIntoView({ block: "center" });
}

function isCalibratable({ q, r }) {
    return q > 1 && isConcave(q, r);
}

function addSets() {
    const panel = document.getElementById("sets"), facts = panel.querySelector(".facts"), list = panel.querySelector(".digits");
    const cards = Array.from({ length: SHOWN }, (_, index) => {
        const canvas = element("canvas", { width: 8, height: 8, "aria-hidden": "true" });
        const card = element("button", { type: "button", class: "digit" }, canvas, element("span", { class: "set" }), element("small"));
        drawDigit(canvas, digits.test.images[index]);
        card.addEventListener("click", () => showDigit(index));
        list.append(card);
        return card;
    });
    panels.push({
        place: panel,
        inputs: ["q", "r", "cover"],
        draw: (view) => {
            list.hidden = !isCalibratable(view);
            if (list.hidden) {
                facts.textContent = view.q === 1
                    ? "At q = 1 the map is softmax, which keeps every class. Sets need q above 1."
                    : "Here the output can jump, so there is nothing to calibrate. Sets need r at or above 2 − 1/q.";
                return;
            }
            const temperature = calibrated(view), sets = predictionSets(view, temperature);
            const size = sets.reduce((sum, set) => sum + set.length, 0) / sets.length;
            facts.textContent = `Temperature ${temperature < 1e-6 ? "near 0" : temperature.toFixed(3)}: on ${sets.length} other digits the sets `
                + `hold the true one ${(100 * coverageOf(sets)).toFixed(1)} % of the time, with ${size.toFixed(2)} classes on average.`;
            cards.forEach((card, index) => {
                const label = digits.test.labels[index], hit = sets[index].includes(label);
                card.classList.toggle("missed", !hit);
                card.children[1].replaceChildren(...sets[index].map((one) => element(one === label ? "b" : "span", {}, one)));
                card.children[2].textContent = hit ? "" : `misses ${label}`;
                card.setAttribute("aria-label", `A handwritten ${label}, its set ${sets[index].join(", ")}; show its logits in the bars`);
            });
        },
    });
}
