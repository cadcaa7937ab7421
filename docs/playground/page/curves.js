// Two line charts of the jump: where the objective is not concave it can have two maxima, and the map jumps between them.

const CURVE = 161, MEMBERS = 240, HALVINGS = 24;
const BOX = { left: 34, right: 352, top: 8, bottom: 128 };

function across(value, low, high) {
    return rounded(BOX.left + ((value - low) / (high - low)) * (BOX.right - BOX.left));
}

function upward(value, low, high) {
    return rounded(BOX.bottom - ((value - low) / (high - low)) * (BOX.bottom - BOX.top));
}

function path(points) {
    return points.length ? `M${points.map((point) => point.join(" ")).join("L")}` : "";
}

// The probability of the chosen class at each value of its logit.
function sweep({ logits, q, r, temperature, chosen }, values) {
    const rows = values.flatMap((value) => logits.map((logit, index) => (index === chosen ? value : logit)));
    const p = kernel.map(rows, q, r, temperature, logits.length);
    return values.map((_, row) => p[row * logits.length + chosen]);
}

// The steepest step of the curve, halved until what is left is a jump or nothing.
function findJump(view, values, shares) {
    if (isConcave(view.q, view.r)) return null;
    let step = 0;
    for (let index = 1; index < values.length - 1; index++)
        if (shares[index + 1] - shares[index] > shares[step + 1] - shares[step]) step = index;
    let [from, to, low, high] = [values[step], values[step + 1], shares[step], shares[step + 1]];
    for (let halving = 0; halving < HALVINGS; halving++) {
        const middle = (from + to) / 2, [share] = sweep(view, [middle]);
        if (share - low > high - share) [to, high] = [middle, share];
        else [from, low] = [middle, share];
    }
    return high - low > 0.01 ? { at: to, low, high } : null;
}

function drawAxes(svg, ticks, low, high) {
    svg.append(shape("path", { class: "axis", d: `M${BOX.left} ${BOX.top}V${BOX.bottom}H${BOX.right}` }));
    return ticks.map((tick) => svg.appendChild(shape("text", { x: across(tick, low, high), y: BOX.bottom + 15, "text-anchor": "middle" }, tick)));
}

function addCurve(panel, look) {
    const svg = panel.querySelector(".curve"), marks = [-1, -0.5, 0, 0.5, 1], ticks = drawAxes(svg, marks, -1, 1);
    for (const share of [0, 1]) svg.append(shape("text", { x: BOX.left - 6, y: upward(share, 0, 1) + 4, "text-anchor": "end" }, `${100 * share}%`));
    const gap = shape("path", { class: "gap" }), line = shape("path", { class: "line" }), now = shape("circle", { class: "now", r: 5 });
    svg.append(gap, line, now);
    panels.push({
        place: panel,
        inputs: ["logits", "q", "r", "temperature", "chosen", "reach"],
        draw: (view) => {
            const [low, high] = BOUNDS.logit, values = Array.from({ length: CURVE }, (_, index) => low + ((high - low) * index) / (CURVE - 1));
            ticks.forEach((tick, index) => { say(tick, String(high * marks[index]).replace("-", "−")); });
            const shares = sweep(view, values), jump = findJump(view, values, shares);
            const points = values.map((value, index) => [across(value, low, high), upward(shares[index], 0, 1)]);
            const cut = jump ? values.findIndex((value) => value >= jump.at) : values.length;
            const edge = (share) => [across(jump.at, low, high), upward(share, 0, 1)];
            line.setAttribute("d", jump ? path([...points.slice(0, cut), edge(jump.low)]) + path([edge(jump.high), ...points.slice(cut)]) : path(points));
            gap.setAttribute("d", jump ? path([edge(jump.low), edge(jump.high)]) : "");
            now.setAttribute("cx", across(view.logits[view.chosen], low, high));
            now.setAttribute("cy", upward(view.p[view.chosen], 0, 1));
            say(look, sentenceOn(view, jump));
        },
    });
}

function sentenceOn({ q, r, chosen }, jump) {
    const border = (2 - 1 / q).toFixed(2), name = nameOf(chosen);
    if (isConcave(q, r)) return `No jump here: r is at least 2 − 1/q = ${border}. Move r below ${border} to look for one.`;
    if (!jump) return `r is below 2 − 1/q = ${border}, where jumps can be. Along this logit there is none.`;
    return `As the logit of ${name} passes ${signed(jump.at, 3)}, its probability jumps from ${percent(jump.low)} to ${percent(jump.high)}.`;
}

function addObjective(panel) {
    const svg = panel.querySelector(".objective"), list = panel.querySelector(".maxima");
    drawAxes(svg, [0, 0.25, 0.5, 0.75, 1], 0, 1);
    const line = shape("path", { class: "line" }), dots = shape("g", {});
    svg.append(line, dots);
    panels.push({
        place: panel,
        inputs: ["logits", "q", "r", "temperature"],
        draw: ({ logits, q, r, temperature, p }) => {
            const members = kernel.family(logits, q, r, temperature, MEMBERS), maxima = kernel.maxima(logits, q, r, temperature);
            const top = Math.max(...p), isTaken = (one) => Math.abs(one.largest - top) < 1e-9;
            const heights = [...members.map(([, , objective]) => objective), ...maxima.map((one) => one.objective)];
            const high = Math.max(...heights, 1e-6), low = Math.max(Math.min(...heights, 0), high - 3 * depth(members, maxima, high));
            const place = (largest, objective) => [across(largest, 0, 1), upward(Math.max(low, objective), low, high + 0.08 * (high - low))];
            line.setAttribute("d", path(members.filter(([, , objective]) => objective >= low).map(([, largest, objective]) => place(largest, objective))));
            fit(dots, maxima.length, () => shape("circle", { r: 6 }));
            fit(list, Math.max(1, maxima.length), () => element("li", {}, element("span"), element("div", { class: "mini" })));
            maxima.forEach((one, index) => {
                const [x, y] = place(one.largest, one.objective), kind = isTaken(one) ? "best" : "other";
                dots.children[index].setAttribute("cx", x);
                dots.children[index].setAttribute("cy", y);
                dots.children[index].setAttribute("class", kind);
                const [words, mini] = list.children[index].children;
                list.children[index].className = kind;
                say(words, `${kind === "best" ? "highest" : "lower"} maximum: ${one.objective.toFixed(4)}`);
                drawMini(mini, one.p);
            });
        },
    });
}

// How deep the valley between two maxima is; on the scale of the whole height one could not see it.
function depth(members, maxima, high) {
    if (maxima.length < 2) return Infinity;
    const sides = maxima.map((one) => one.largest), [from, to] = [Math.min(...sides), Math.max(...sides)];
    const between = members.filter(([, largest]) => from <= largest && largest <= to).map(([, , objective]) => objective);
    return high - Math.min(...between, ...maxima.map((one) => one.objective));
}

function addJump() {
    const panel = document.getElementById("jump");
    addCurve(panel, panel.querySelector(".look"));
    addObjective(panel);
}
