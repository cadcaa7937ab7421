// The maps of the library side by side. All but alpha-ReLU are members of the family, at their own orders.

const MAPS = [
    { name: "SharMiX", look: "sharmix_fixed" },
    { name: "softmax", look: "softmax", q: 1, r: 1 },
    { name: "1.5-entmax", look: "entmax", q: 1.5, r: 1.5 },
    { name: "sparsemax", look: "sparsemax", q: 2, r: 2 },
    { name: "2-normmax", look: "normmax", q: 2, r: 1.5 },
    { name: "α-ReLU", look: "alpha_relu" },
];

// A threshold as alpha-ReLU finds it on its first batch, here the first view: that of 1.5-entmax.
function firstThreshold() {
    const p = kernel.map(FIRST.logits, 1.5, 1.5);
    return 0.5 * FIRST.logits[0] - Math.sqrt(p[0]);
}

// p and the loss of the chosen class under a map.
function underMap({ name, q, r }, view, threshold) {
    const { logits, temperature, chosen } = view;
    if (name === "α-ReLU") {
        const { loss, gradient } = kernel.alphaReluLoss(logits.map((logit) => logit / temperature), chosen, threshold);
        return { p: gradient.map((value, index) => value + Number(index === chosen)), loss: temperature * loss };
    }
    const orders = [q ?? view.q, r ?? view.r, temperature];
    return { p: kernel.map(logits, ...orders), loss: kernel.loss(logits, chosen, ...orders).loss };
}

function addMaps() {
    const body = document.querySelector("#maps tbody"), threshold = firstThreshold();
    const short = (number, digits) => number.toFixed(number < 100 ? digits : 0);
    const title = document.querySelector("#maps th:nth-child(2)");
    const rows = MAPS.map(({ name, look }) => {
        const mini = element("div", { class: "mini" }), cells = [0, 1, 2].map(() => element("td", { class: "number" }));
        const row = element("tr", {}, element("th", { scope: "row" }, name), element("td", {}, mini), ...cells);
        row.style.setProperty("--colour", `var(--${look})`);
        body.append(row);
        return { mini, cells };
    });
    panels.push({
        place: document.getElementById("maps"),
        inputs: ["logits", "q", "r", "temperature", "chosen"],
        draw: (view) => MAPS.forEach((map, index) => {
            say(title, isMany() ? "probabilities, as high as the row’s largest" : "probabilities");
            const { p, loss } = underMap(map, view, threshold), { mini, cells } = rows[index];
            drawMini(mini, p.map((share) => Math.min(1, share)));
            say(cells[0], grouped(p.filter((share) => share > 0).length));
            say(cells[1], short(p.reduce((sum, share) => sum + share, 0), 2));
            say(cells[2], short(loss, 3));
        }),
    });
}
