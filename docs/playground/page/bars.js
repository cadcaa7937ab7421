// The logits as handles to drag, and under each its probability.

const INSET = 12; // pixels, half a handle: at an end of its track it stays inside

function addBars() {
    const bars = document.getElementById("bars"), sentence = document.getElementById("survivors");
    const make = (index) => {
        const track = element("div", {
            class: "track", role: "slider", tabindex: 0, "aria-orientation": "vertical",
            "aria-label": `Logit of class ${NAMES[index]}`,
        }, element("div", { class: "stem" }), element("div", { class: "thumb" }));
        onDrag(track, (_, y) => {
            const height = track.clientHeight, share = (y * height - INSET) / (height - 2 * INSET);
            setLogit(index, state.reach * (1 - 2 * share));
        });
        onArrows(track, (right, up) => setLogit(index, state.logits[index] + (right + up) / 10));
        track.addEventListener("keydown", ({ key }) => {
            if (key === "Home") setLogit(index, -state.reach);
            if (key === "End") setLogit(index, state.reach);
        });
        const choice = element("input", { type: "radio", name: "chosen", "aria-label": `Choose class ${NAMES[index]}` });
        choice.addEventListener("change", () => update({ chosen: index }));
        return element("div", { class: "bar" }, track, element("div", { class: "share" }),
            element("div", { class: "column" }, element("i")), element("label", {}, choice, NAMES[index]));
    };
    panels.push({
        inputs: ["logits", "p", "chosen", "reach"],
        draw: ({ logits, p, chosen, reach }) => {
            say(sentence, `${summary(p)} ${isMany() ? "" : "Click a letter to choose the class of the panels below."}`);
            for (const name of document.querySelectorAll(".chosen-name")) say(name, nameOf(chosen));
            if (isMany()) return drawPlot(bars, p, percent);
            const made = fit(bars, logits.length, make), digits = Math.max(0, (logits.length > 8 ? 2 : 3) - String(reach).length);
            logits.forEach((logit, index) => {
                const [track, share, column, label] = made[index].children, [stem, thumb] = track.children;
                made[index].className = p[index] === 0 ? "bar zero" : "bar";
                for (const [name, value] of [["min", -reach], ["max", reach], ["now", logit]]) track.setAttribute(`aria-value${name}`, value);
                track.setAttribute("aria-valuetext", `${logit}, probability ${percent(p[index])}`);
                say(thumb, logit.toFixed(digits).replace("-", "−"));
                thumb.style.top = `calc(${INSET}px + (100% - ${2 * INSET}px) * ${(1 - logit / reach) / 2})`;
                stem.style.transform = `scaleY(${-logit / reach})`;
                say(share, percent(p[index], logits.length > 9 ? 0 : 1));
                column.firstElementChild.style.setProperty("--share", p[index]);
                label.firstElementChild.checked = index === chosen;
            });
        },
    });
}

// The sliders of numbers, and the fields beside some: each shows what the state says and writes what is dragged or typed.
function addControls() {
    const decimals = (least) => (value) => value.toLocaleString("en", { minimumFractionDigits: least, maximumFractionDigits: 4 });
    const controls = {
        q: { show: decimals(2) },
        r: { show: decimals(2) },
        temperature: { show: decimals(0) },
        cover: { show: (value) => `${value} %` },
        classes: { inputs: ["logits"], read: (view) => view.logits.length, write: setNumberOfClasses, show: grouped },
        class: { inputs: ["chosen"], read: (view) => view.chosen, write: (index, said) => update({ chosen: Math.round(index), said }), show: String },
    };
    for (const [name, { inputs = [name], read = (view) => view[name], write = (value, said) => update({ [name]: value, said }), show }] of Object.entries(controls)) {
        const slider = document.getElementById(name), shown = document.getElementById(`${name}-value`);
        const draw = (view) => {
            if (slider) slider.value = read(view);
            if (shown.value !== show(read(view))) shown.value = show(read(view));
        };
        panels.push({ inputs, draw });
        slider?.addEventListener("input", () => write(Number(slider.value), {}));
        shown.addEventListener("change", () => {
            const { value = read(state), fault } = readNumber(name, shown.value);
            write(value, { [shown.closest(".panel").querySelector(".said").id]: fault && `${fault}.` });
            draw(state); // the panel draws nothing where the state is as before
        });
    }
    const many = document.getElementById("class-value").closest("div"), lines = document.querySelectorAll(".panel .said");
    panels.push({
        inputs: ["logits", "said", "isMoving"],
        draw: ({ said, isMoving }) => {
            many.hidden = !isMany();
            for (const line of lines) if (said[line.id] || !isMoving) say(line, said[line.id] || "");
        },
    });
}

// Logits as text.
function addPaste() {
    const field = document.getElementById("paste");
    const take = () => {
        if (!field.value.trim()) return;
        const { value, fault } = readLogits(field.value);
        const allowed = `2 to ${grouped(MOST_CLASSES)} numbers from −${grouped(LARGEST_LOGIT)} to ${grouped(LARGEST_LOGIT)} are allowed`;
        update(fault ? { said: { "bars-said": `${fault}; ${allowed}.` } } : { logits: value, chosen: value.indexOf(Math.max(...value)) });
    };
    field.addEventListener("change", take);
    field.addEventListener("input", ({ inputType }) => inputType?.startsWith("insertFrom") && take()); // pasted or dropped
    field.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" || event.shiftKey) return;
        event.preventDefault();
        take();
    });
}
