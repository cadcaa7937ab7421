// Six states that tell a story, in order.

const PRESETS = [
    {
        name: "Softmax keeps everyone",
        set: { ...FIRST, q: 1, r: 1 },
        story: "At (1, 1) the map is softmax. Every class keeps a share, however small its logit.",
    },
    {
        name: "Sparsemax cuts the tail",
        set: { ...FIRST, q: 2, r: 2 },
        story: "At (2, 2) the same logits leave few classes. Drag a dashed bar up until it comes back.",
    },
    {
        name: "r reacts to uncertainty",
        set: { ...FIRST, q: 1.5, r: 2.1, logits: [0.6, 0.5, 0.4, 0.3, 0.2, 0.1], chosen: 0 },
        story: "These logits are close, so the output is uncertain. As r is above q, the map sharpens it. Move r below q, and the map flattens it.",
    },
    {
        name: "Three classes, one triangle",
        set: { ...FIRST, q: 1.75, r: 1.75, logits: [1.1, 0.5, -1.6], chosen: 0 },
        story: "With three classes the whole map fits in one picture.",
        panel: "triangle",
    },
    {
        name: "The jump",
        set: { ...FIRST, q: 1.75, r: 1.25, logits: [1.34, 0, 0, 0, 0, 0, 0, 0, 0, 0], chosen: 0 },
        story: "Below the line r = 2 − 1/q two answers compete. Raise A a little, and its probability jumps.",
        panel: "jump",
    },
    {
        name: "Cover 90 %",
        set: { ...FIRST, q: 1.5, r: 1.5, cover: 90 },
        story: "The surviving classes become a set that holds the right answer nine times in ten.",
        panel: "sets",
    },
];

function addPresets() {
    const group = document.getElementById("presets"), story = document.getElementById("story");
    const buttons = PRESETS.map(({ name, set }) => {
        const button = element("button", { type: "button", "aria-pressed": "false" }, name);
        button.addEventListener("click", () => update(structuredClone(set)));
        group.append(button);
        return button;
    });
    panels.push({
        inputs: ["q", "r", "temperature", "logits", "chosen", "cover"],
        draw: (view) => {
            const current = PRESETS.findIndex(({ set }) => Object.keys(set).every((name) => String(set[name]) === String(view[name])));
            buttons.forEach((button, index) => button.setAttribute("aria-pressed", index === current));
            story.textContent = current < 0 ? "Press an example, or drag anything: a bar, the point in the plane, the ring in the triangle." : `${PRESETS[current].story} `;
            const target = PRESETS[current]?.panel;
            if (!target) return;
            const jump = element("button", { type: "button" }, "Go to the panel");
            jump.addEventListener("click", () => document.getElementById(target).scrollIntoView());
            story.append(jump);
        },
    });
}
