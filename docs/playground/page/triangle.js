// Three classes: a triangle of logits, coloured by which classes survive, and in the same triangle the probabilities.

const REACH = 6; // logits at a corner are REACH (2/3, -1/3, -1/3)
const HEIGHT = Math.sqrt(3) / 2;
const CORNERS = [[0, HEIGHT], [1, HEIGHT], [0.5, 0]]; // of A, B and C; y points down
const STEP = 0.02; // of an arrow key, in sides

function placeOf(shares) {
    return [0, 1].map((axis) => shares.reduce((sum, share, index) => sum + share * CORNERS[index][axis], 0));
}

// The barycentric coordinates of a place, moved into the triangle.
function sharesAt(x, y) {
    const top = 1 - y / HEIGHT, right = x - top / 2;
    const shares = [1 - top - right, right, top].map((share) => Math.max(0, share));
    const total = shares[0] + shares[1] + shares[2];
    return shares.map((share) => share / total);
}

function logitsOf(shares) {
    return shares.map((share) => REACH * (share - 1 / 3));
}

function sharesOf(logits) {
    const mean = (logits[0] + logits[1] + logits[2]) / 3;
    return sharesAt(...placeOf(logits.map((logit) => (logit - mean) / REACH + 1 / 3)));
}

// The logits of A, B and C, where there are only two classes with one that is far below.
function firstThree(logits) {
    return logits.length < 3 ? [...logits, BOUNDS.logit[0]] : logits.slice(0, 3);
}

function letters(p) {
    return p.map((share, index) => (share > 0 ? NAMES[index] : "")).join(" ").trim().replace(/ +/g, " ");
}

// What survives at each place of a grid, as letters.
function regions(width, height, { q, r, temperature }) {
    const logits = [];
    for (let row = 0; row < height; row++)
        for (let column = 0; column < width; column++)
            logits.push(...logitsOf(sharesAt(column / (width - 1), (HEIGHT * row) / (height - 1))));
    const p = kernel.map(logits, q, r, temperature, 3);
    return Array.from({ length: width * height }, (_, index) => {
        const own = 3 * index;
        return (p[own] > 0) + 2 * (p[own + 1] > 0) + 4 * (p[own + 2] > 0);
    });
}

function paintRegions(canvas, words, survivors, width, height) {
    const image = new ImageData(width, height), sums = new Map();
    const colours = [1, 2, 3].map((alive) => shade(alive, 3)), alive = [0, 1, 1, 2, 1, 2, 2, 3];
    survivors.forEach((who, index) => {
        image.data.set([...colours[Math.max(1, alive[who]) - 1], 255], 4 * index);
        const x = (index % width) / (width - 1), y = (HEIGHT * Math.floor(index / width)) / (height - 1), top = 1 - y / HEIGHT;
        if (x < top / 2 || x > 1 - top / 2) return; // outside the triangle
        const sum = sums.get(who) ?? [0, 0, 0];
        sums.set(who, [sum[0] + x, sum[1] + y, sum[2] + 1]);
    });
    if (canvas.width !== width) Object.assign(canvas, { width, height });
    canvas.getContext("2d").putImageData(image, 0, 0);
    const named = [...sums].filter(([, [, , count]]) => count > 0.012 * survivors.length);
    const labels = fit(words, named.length, () => shape("text", {}));
    named.forEach(([who, [x, y, count]], index) => {
        say(labels[index], [...NAMES.slice(0, 3)].filter((_, place) => who & (1 << place)).join(" "));
        labels[index].setAttribute("x", x / count);
        labels[index].setAttribute("y", y / count + 0.015);
        labels[index].setAttribute("style", `fill: ${inkOver(colours[alive[who] - 1])}; stroke: rgb(${colours[alive[who] - 1]})`);
    });
}

function addTriangle() {
    const panel = document.getElementById("triangle"), simplex = panel.querySelector(".simplex"), svg = simplex.querySelector("svg");
    const canvas = simplex.querySelector("canvas"), handle = simplex.querySelector(".handle"), note = panel.querySelector(".note");
    const words = shape("g", {}), thread = shape("line", { class: "thread" }), rim = shape("circle", { class: "image-rim", r: 0.034 });
    const image = shape("circle", { class: "image", r: 0.028 });
    svg.append(
        words, shape("path", { class: "side", d: `M${CORNERS.map((corner) => corner.join(" ")).join("L")}Z` }),
        thread, rim, image,
        ...CORNERS.map(([x, y], index) => shape("text", { x: x + [-0.05, 0.05, 0][index], y: y + [0.03, 0.03, -0.035][index] }, NAMES[index])),
    );

    const moveTo = (x, y) => {
        const logits = logitsOf(sharesAt(x, y)).map((logit) => rounded(logit));
        update({ logits });
    };
    onDrag(simplex, (x, y) => moveTo(1.16 * x - 0.08, 1.03 * y - 0.09));
    onArrows(handle, (right, up) => {
        const [x, y] = placeOf(sharesOf(firstThree(state.logits)));
        moveTo(x + STEP * right, y - STEP * up);
    });

    const paint = (view, width, height) => paintRegions(canvas, words, regions(width, height, view), width, height);
    panels.push({
        place: panel,
        inputs: ["q", "r", "temperature", "isMoving"],
        draw: (view) => paint(view, ...(view.isMoving ? [61, 53] : [271, 235])),
    }, {
        inputs: ["logits", "p"],
        draw: ({ logits, q, r, temperature }) => {
            const three = firstThree(logits), shares = sharesOf(three), p = kernel.map(three, q, r, temperature);
            const from = placeOf(shares), to = placeOf(p);
            handle.style.left = `${(100 * (from[0] + 0.08)) / 1.16}%`;
            handle.style.top = `${(100 * (from[1] + 0.09)) / 1.03}%`;
            handle.setAttribute("aria-valuenow", rounded(p[0], 3));
            handle.setAttribute("aria-valuetext", `probabilities ${p.map((share, index) => `${NAMES[index]} ${percent(share)}`).join(", ")}`);
            [["x1", from[0]], ["y1", from[1]], ["x2", to[0]], ["y2", to[1]]].forEach(([name, value]) => thread.setAttribute(name, value));
            for (const dot of [rim, image]) {
                dot.setAttribute("cx", to[0]);
                dot.setAttribute("cy", to[1]);
            }
            say(note, logits.length === 3
                ? `${letters(p).replaceAll(" ", " and ")} ${letters(p).length > 1 ? "survive" : "survives"}: ${p.map((share, index) => `${NAMES[index]} ${percent(share)}`).join(", ")}.`
                : "Shown for A, B and C, the first three classes, alone. Drag the ring, and the page goes on with these three classes.");
        },
    });
}
