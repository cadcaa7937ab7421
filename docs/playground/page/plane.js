// The plane of (q, r), coloured by the number of classes that keep a probability.

// Points along a side: while something moves, and at rest. And the rows of the fine plane that one frame draws.
const FEW = { coarse: 41, fine: 241, slice: 6 }, MANY = { coarse: 15, fine: 121, slice: 2 };
const gridOf = ({ logits }) => (isMany(logits.length) ? MANY : FEW);
const PINS = [
    { name: "softmax", q: 1, r: 1, look: "softmax" },
    { name: "sparsemax", q: 2, r: 2, look: "sparsemax", side: "left" },
    { name: "1.5-entmax", q: 1.5, r: 1.5, look: "entmax" },
    { name: "Gaussian", q: 1, r: 1.75, look: "muted" },
    { name: "Rényi", q: 1.5, r: 1, look: "muted" },
];

function acrossPlane(q) {
    return (q - BOUNDS.q[0]) / (BOUNDS.q[1] - BOUNDS.q[0]);
}

function downPlane(r) {
    return (BOUNDS.r[1] - r) / (BOUNDS.r[1] - BOUNDS.r[0]);
}

// The orders at the places of a square grid, in rows from the top.
function gridOrders(side, fromRow, toRow) {
    const q = [], r = [];
    for (let row = fromRow; row < toRow; row++) {
        for (let column = 0; column < side; column++) {
            q.push(BOUNDS.q[0] + ((BOUNDS.q[1] - BOUNDS.q[0]) * column) / (side - 1));
            r.push(BOUNDS.r[1] - ((BOUNDS.r[1] - BOUNDS.r[0]) * row) / (side - 1));
        }
    }
    return [q, r];
}

function paintPlane(canvas, sizes, side, classes) {
    const image = new ImageData(side, side), colours = Array.from({ length: classes + 1 }, (_, alive) => shade(Math.max(1, alive), classes));
    sizes.forEach((alive, index) => image.data.set([...colours[alive], 255], 4 * index));
    if (canvas.width !== side) canvas.width = canvas.height = side;
    canvas.getContext("2d").putImageData(image, 0, 0);
}

// The boxes on the plane that no label may cover, as [left, top, right, bottom] in shares of its sides.
function takenBoxes(plane) {
    const whole = plane.getBoundingClientRect();
    return [...plane.querySelectorAll(".pin, .pin span, .word")].map((one) => {
        const box = one.getBoundingClientRect();
        return [(box.left - whole.left) / whole.width, (box.top - whole.top) / whole.height,
            (box.right - whole.left) / whole.width, (box.bottom - whole.top) / whole.height];
    });
}

const MOST_NAMES = 10; // of regions; of many classes a few of the nested regions are enough

// The place of each number of survivors that is furthest from any other, by the city-block distance.
function middles(sizes, side, boxes) {
    const distance = new Int32Array(sizes.length).fill(1);
    for (const [left, top, right, bottom] of boxes)
        for (let row = Math.max(0, Math.floor(top * side)); row <= Math.min(side - 1, bottom * side); row++)
            distance.fill(0, row * side + Math.max(0, Math.floor(left * side)), row * side + Math.min(side, Math.ceil(right * side)));
    const near = (index, other, isThere) => (isThere && sizes[other] === sizes[index] ? distance[other] + 1 : 1);
    for (let index = 0; index < sizes.length; index++)
        distance[index] &&= Math.min(near(index, index - side, index >= side), near(index, index - 1, index % side > 0));
    const best = new Map();
    for (let index = sizes.length - 1; index >= 0; index--) {
        const below = near(index, index + side, index < sizes.length - side), right = near(index, index + 1, index % side < side - 1);
        distance[index] &&= Math.min(distance[index], below, right);
        if (distance[index] > (best.get(sizes[index])?.distance ?? 0.025 * side))
            best.set(sizes[index], { distance: distance[index], x: (index % side) / (side - 1), y: Math.floor(index / side) / (side - 1) });
    }
    return best;
}

function nameRegions(parent, sizes, side, classes, boxes) {
    const all = [...middles(sizes, side, boxes)].sort(([one], [other]) => one - other), step = Math.ceil(all.length / MOST_NAMES);
    const found = all.filter((_, index) => (all.length - 1 - index) % step === 0);
    const labels = fit(parent, found.length, () => element("span"));
    found.forEach(([alive, { x, y }], index) => {
        say(labels[index], alive === classes ? `all ${grouped(alive)}` : alive);
        labels[index].style.cssText = `left: ${100 * x}%; top: ${100 * y}%; --over: ${inkOver(shade(alive, classes))}`;
    });
}

// The lines of the special entropies, the border of the concave region, ticks and pins.
function furnishPlane(plane) {
    const border = Array.from({ length: 41 }, (_, index) => 1 + index / 40).map((q) => `${acrossPlane(q)} ${downPlane(2 - 1 / q)}`);
    const line = (from, to) => `M${acrossPlane(from[0])} ${downPlane(from[1])}L${acrossPlane(to[0])} ${downPlane(to[1])}`;
    const svg = plane.querySelector("svg");
    const hatch = shape("pattern", { id: "hatch", width: 0.02, height: 0.02, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" });
    hatch.append(shape("path", { d: "M0 0V.02", "vector-effect": "non-scaling-stroke" }));
    svg.append(
        hatch,
        shape("path", { class: "unsafe", d: `M${border.join("L")}V1H0Z` }),
        shape("path", { class: "special", d: line([1, 1], [2, 2]) }),
        shape("path", { class: "special", d: line([1, 1], [2, 1]) }),
        shape("path", { class: "rim", d: `M${border.join("L")}` }),
        shape("path", { class: "border", d: `M${border.join("L")}` }),
    );
    const put = (made, q, r) => {
        made.style.left = `${100 * acrossPlane(q)}%`;
        made.style.top = `${100 * downPlane(r)}%`;
        return made;
    };
    plane.append(put(element("span", { class: "word" }, "r = 2 − 1/q"), 1.88, 1.37));
    plane.append(put(element("span", { class: "word long" }, "below: the output can jump"), 1.68, 0.83));
    for (const q of [1, 1.25, 1.5, 1.75, 2]) {
        const tick = put(element("span", { class: "tick q" }, q === 2 ? "q = 2" : q), q, 1);
        tick.style.top = "";
        plane.append(tick);
    }
    for (const r of [1, 1.25, 1.5, 1.75, 2]) {
        const tick = put(element("span", { class: "tick r" }, r === 2 ? "r = 2" : r), 1, r);
        tick.style.left = "";
        plane.append(tick);
    }
    for (const { name, q, r, look, side = "" } of PINS) {
        const pin = put(element("button", { type: "button", class: `pin ${side}`, "aria-label": `${name}: q = ${q}, r = ${r}` }), q, r);
        pin.append(element("span", {}, name));
        pin.style.setProperty("--colour", `var(--${look})`);
        pin.addEventListener("click", () => update({ q, r }));
        plane.querySelector(".pins").append(pin);
    }
}

function setOrders(q, r) {
    update({ q: rounded(within("q", q)), r: rounded(within("r", r)) });
}

function addPlane() {
    const plane = document.getElementById("plane"), canvas = plane.querySelector("canvas"), handle = plane.querySelector(".handle");
    const regions = plane.querySelector(".regions");
    let refinement = 0; // which of the fine planes is being computed
    furnishPlane(plane);
    let boxes = takenBoxes(plane);
    addEventListener("resize", () => { boxes = takenBoxes(plane); });
    onDrag(plane, (x, y) => setOrders(
        BOUNDS.q[0] + x * (BOUNDS.q[1] - BOUNDS.q[0]), BOUNDS.r[1] - y * (BOUNDS.r[1] - BOUNDS.r[0])));
    onArrows(handle, (right, up) => setOrders(state.q + right / 100, state.r + up / 100));

    const refine = (view, sizes) => {
        const { fine, slice } = gridOf(view), own = refinement, row = sizes.length / fine, stop = Math.min(fine, row + slice);
        for (const size of kernel.survivors(view.logits, ...gridOrders(fine, row, stop), view.temperature)) sizes.push(size);
        if (stop < fine && isPrinting) return refine(view, sizes);
        if (stop < fine) return requestAnimationFrame(() => own === refinement && refine(view, sizes));
        paintPlane(canvas, sizes, fine, view.logits.length);
        return nameRegions(regions, sizes, fine, view.logits.length, boxes);
    };
    panels.push({
        place: plane,
        inputs: ["logits", "temperature"],
        draw: (view) => {
            refinement += 1;
            const { coarse } = gridOf(view), sizes = kernel.survivors(view.logits, ...gridOrders(coarse, 0, coarse), view.temperature);
            paintPlane(canvas, sizes, coarse, view.logits.length);
            nameRegions(regions, sizes, coarse, view.logits.length, boxes);
            plane.dataset.resolution = "coarse";
        },
    }, {
        inputs: ["logits", "temperature", "isMoving"],
        draw: (view) => {
            if (view.isMoving || plane.dataset.resolution === "fine") return;
            plane.dataset.resolution = "fine";
            refine(view, []);
        },
    }, {
        inputs: ["q", "r", "alive"],
        draw: ({ q, r, p, alive }) => {
            handle.style.left = `${100 * acrossPlane(q)}%`;
            handle.style.top = `${100 * downPlane(r)}%`;
            handle.setAttribute("aria-valuenow", q);
            handle.setAttribute("aria-valuetext", `q ${q}, r ${r}: ${alive} of ${p.length} classes survive`);
        },
    });
}
