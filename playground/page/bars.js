// The logits as handles to drag, and under each its probability.

const INSET = 12; // pixels, half a handle: at an end of its track it stays inside

function addBars() {
    const bars = document.getElementById("bars"), sentence = document.getElementById("survivors");
    const [low, high] = BOUNDS.logit;
    const make = (index) => {
        const track = element("div", {
            class: "track", role: "slider", tabindex: 0, "aria-orientation": "vertical",
            "aria-label": `Logit of class ${NAMES[index]}`, "aria-valuemin": low, "aria-valuemax": high,
        }, element("div", { class: "stem" }), element("div", { class: "thumb" }));
        onDrag(track, (_, y) => {
            const height = track.clientHeight, share = (y * height - INSET) / (height - 2 * INSET);
            setLogit(index, high - share * (high - low));
        });
        onArrows(track, (right, up) => setLogit(index, state.logits[index] + (right + up) / 10));
        track.addEventListener("keydown", ({ key }) => {
            if (key === "Home") setLogit(index, low);
            if (key === "End") setLogit(index, high);
        });
        const choice = element("input", { type: "radio", name: "chosen", "aria-label": `Choose class ${NAMES[index]}` });
        choice.addEventListener("change", () => update({ chosen: index }));
        return element("div", { class: "bar" }, track, element("div", { class: "share" }),
            element("div", { class: "column" }, element("i")), element("label", {}, choice, NAMES[index]));
    };
    panels.push({
        inputs: ["logits", "p", "chosen"],
        draw: ({ logits, p, chosen }) => {
            const made = fit(bars, logits.length, make);
            logits.forEach((logit, index) => {
                const [track, share, column, label] = made[index].children, [stem, thumb] = track.children;
                made[index].className = p[index] === 0 ? "bar zero" : "bar";
                track.setAttribute("aria-valuenow", logit);
                track.setAttribute("aria-valuetext", `${logit}, probability ${percent(p[index])}`);
                say(thumb, logit.toFixed(logits.length > 8 ? 1 : 2).replace("-", "−"));
                thumb.style.top = `calc(${INSET}px + (100% - ${2 * INSET}px) * ${(high - logit) / (high - low)})`;
                stem.style.transform = `scaleY(${-logit / high})`;
                say(share, percent(p[index], logits.length > 9 ? 0 : 1));
                column.firstElementChild.style.setProperty("--share", p[index]);
                label.firstElementChild.checked = index === chosen;
            });
            say(sentence, `${summary(p)} Click a letter to choose the class of the panels below.`);
            for (const name of document.querySelectorAll(".chosen-name")) say(name, NAMES[chosen]);
        },
    });
}

// The sliders of numbers: each shows what the state says and writes what it is dragged to.
function addControls() {
    const sliders = {
        q: { read: (view) => view.q, write: (q) => update({ q }), show: (q) => q.toFixed(2) },
        r: { read: (view) => view.r, write: (r) => update({ r }), show: (r) => r.toFixed(2) },
        temperature: { read: (view) => view.temperature, write: (temperature) => update({ temperature }), show: (value) => String(rounded(value, 3)) },
        classes: { read: (view) => view.logits.length, write: setNumberOfClasses, show: String },
        cover: { read: (view) => view.cover, write: (cover) => update({ cover }), show: (value) => `${value} %` },
    };
    for (const [name, { read, write, show }] of Object.entries(sliders)) {
        const input = document.getElementById(name), output = document.getElementById(`${name}-value`);
        input.addEventListener("input", () => write(Number(input.value)));
        panels.push({
            inputs: name === "classes" ? ["logits"] : [name],
            draw: (view) => {
                input.value = read(view);
                say(output, show(read(view)));
            },
        });
    }
}
