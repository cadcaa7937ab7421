// Starts the page.

const { digits } = readData();
const kernel = await Kernel.load(document.getElementById("kernel").textContent.trim()).catch((reason) => {
    document.getElementById("story").textContent = "This browser is too old for the page: it cannot run WebAssembly with vectors.";
    throw reason;
});
for (const add of [addPlane, addBars, addControls, addPaste, addMaps, addLoss, addJacobian, addTriangle, addJump, addSets, addPresets, addPython]) add();
Object.assign(state, readAddress());
drawAll();
watchSight();
requestAnimationFrame(() => setTimeout(settle)); // the first view is drawn at once, its fine colours follow

document.addEventListener("themechange", repaint);
addEventListener("hashchange", () => update(readAddress()));
for (const [event, printing] of [["beforeprint", true], ["afterprint", false]]) {
    addEventListener(event, () => {
        isPrinting = printing;
        repaint();
    });
}

// For the browser's console and for tests.
globalThis.playground = kernel;
document.documentElement.dataset.ready = performance.now().toFixed(0);

// Logits as 16-bit integers of `unit`, in base64.
function readData() {
    const read = JSON.parse(document.getElementById("data").textContent);
    for (const part of [read.digits.calibration, read.digits.test]) {
        const bytes = Uint8Array.from(atob(part.logits), (letter) => letter.charCodeAt(0));
        part.logits = Array.from(new Int16Array(bytes.buffer), (integer) => integer * read.digits.unit);
        part.labels = [...part.labels].map(Number);
    }
    return read;
}

function readAddress() {
    if (document.querySelector(":target")) return {}; // the address names a place on the page
    const { ignored, ...read } = stateFrom(location.hash);
    say(document.getElementById("ignored"), ignored);
    return read;
}

function repaint() {
    isMoving = false;
    drawAll();
}
