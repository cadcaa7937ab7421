"use strict";
(async () => {
const one = (id) => document.getElementById(id);
const root = document.documentElement;
const dark = () => root.dataset.theme === "dark";

// ---- What the page carries ------------------------------------------------------------------------------------------

async function unpacked(id) {
  const bytes = Uint8Array.from(atob(one(id).textContent), (character) => character.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

const data = JSON.parse(await unpacked("payload"));
const library = document.createElement("script");
library.textContent = await unpacked("plotly");
document.head.append(library);
const state = { experiment: Object.keys(data.experiments)[0], column: null, shown: new Set() };

// ---- Elements, tables -----------------------------------------------------------------------------------------------

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

const fixed = (value, digits) => value.toFixed(digits).replace("-", "−");
const written = (value, digits = 4) => (Number.isInteger(value) ? String(value).replace("-", "−") : fixed(value, digits));

// Headings are texts; a cell is a text, a number or an element. Numbers are sorted by their full precision.
function table(label, headings, rows, digits = 4) {
  const numeric = headings.map((_, place) => rows.some((row) => typeof row[place] === "number" || row[place]?.dataset?.value));
  const cell = (value, place) => {
    if (place === 0) return make("th", { scope: "row" }, value);
    if (value instanceof Node) return make("td", { "data-value": value.dataset.value ?? null, class: value.dataset.value ? "number" : null }, value);
    if (typeof value === "number") return make("td", { class: "number", "data-value": value, title: value }, written(value, digits));
    return make("td", { "data-value": numeric[place] && value === null ? "" : null }, value ?? "–");
  };
  const result = make("table", { class: "sortable" },
    make("thead", {}, make("tr", {}, ...headings.map((text, place) => make("th", { class: numeric[place] ? "number" : null }, text)))),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map(cell)))));
  sortable(result);
  return make("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": label }, result);
}

function sortable(element) {
  const headings = [...element.tHead.rows[0].cells];
  headings.forEach((heading, place) => {
    const button = make("button", { type: "button", class: "sort" }, ...heading.childNodes);
    heading.replaceChildren(button);
    heading.setAttribute("scope", "col");
    button.addEventListener("click", () => {
      const descending = heading.getAttribute("aria-sort") === "ascending";
      headings.forEach((other) => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
      sort(element.tBodies[0], place, descending ? -1 : 1);
    });
  });
}

function sort(body, place, direction) {
  const key = (row) => {
    const { value } = row.cells[place].dataset;
    return value === undefined ? row.cells[place].textContent.trim() : value === "" ? null : Number(value);
  };
  const compared = (a, b) =>
    a === null || b === null ? (a === null) - (b === null)  // without a number: last, either way
      : direction * (typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true }));
  body.append(...[...body.rows].sort((a, b) => compared(key(a), key(b))));
}

function command(text) {
  const button = make("button", { type: "button", class: "copy", onclick: async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Select the text instead";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  } }, "Copy");
  return make("div", { class: "command" }, make("code", {}, text), button);
}

// ---- The dialog: the runs behind a number, and the record of a run ---------------------------------------------------

const dialog = one("dialog");
let before = null;  // what the dialog showed before a record

function open(title, ...content) {
  one("dialog-title").textContent = title;
  one("dialog-body").replaceChildren(...content.filter((part) => part !== null));
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
  one("dialog-title").focus();
}

function valueOf(run, column, epoch) {
  return run.curves[column]?.[run.curves.epoch.indexOf(Number(epoch || run.epoch))] ?? null;
}

const recordButton = (key, text, value = null) =>
  make("button", { type: "button", class: "number", "data-run": key, "data-value": value, onclick: () => openRecord(key) }, text);

function openNumbers({ what, runs, against = "", column, epoch }) {
  const parts = (keys) => [...Map.groupBy(keys, (key) => data.runs[key].group)].flatMap(([group, own]) => {
    const { label } = data.groups[group];
    const rows = own.map((key) => {
      const run = data.runs[key];
      return [recordButton(key, `seed ${run.seed}`), run.seed, epoch || run.epoch, valueOf(run, column, epoch)];
    });
    return [make("h3", {}, label), table(`Runs of ${label}`, ["Record", "Seed", "Epoch", data.experiments[group.split("/")[0]].columns[column] ?? column], rows, 6)];
  });
  const others = against.split(" ").filter(Boolean);
  before = () => { one("back").hidden = true; openNumbers({ what, runs, against, column, epoch }); };
  one("back").hidden = true;
  open(what,
    make("p", { class: "quiet" }, "The number is the mean over these runs" + (others.length ? ", less the mean over those below, seed by seed, in percentage points." : ".")),
    ...parts(runs.split(" ").filter(Boolean)),
    others.length ? make("h3", {}, "Compared with") : null,
    ...parts(others));
}

function facts(pairs) {
  const known = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return make("dl", {}, ...known.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, String(value))]));
}

function flat(settings, prefix = "") {
  return Object.entries(settings).flatMap(([key, value]) =>
    value !== null && typeof value === "object" && !Array.isArray(value) && Object.keys(value).length
      ? flat(value, `${prefix}${key}.`)
      : [[prefix + key, typeof value === "string" ? value : JSON.stringify(value)]]);
}

const inWords = (values) => Object.entries(values).filter(([, value]) => value !== null).map(([key, value]) => `${key} ${typeof value === "object" ? JSON.stringify(value) : value}`).join(", ");

function openRecord(key) {
  if (!Object.hasOwn(data.runs, key)) return;
  const run = data.runs[key];
  one("back").hidden = before === null;
  history.replaceState(null, "", `#run=${key}`);
  const title = `${run.experiment}: ${run.label}, seed ${run.seed}`;
  const code = run.code;
  const splits = Object.keys(run.metrics);
  const columns = data.experiments[run.experiment].columns;
  const nameOf = (metric) => splits.map((split) => columns[`${split}/${metric}`]?.replace(`, ${split}`, "")).find(Boolean) ?? metric;
  const metrics = [...new Set(splits.flatMap((split) => Object.keys(run.metrics[split])))];
  open(title,
    make("h3", {}, "Repeat it"),
    command(run.command),
    facts([
      ["Commit", code.commit && code.commit + (code.dirty === false ? "" : code.dirty ? ", with changes" : ", state unknown")],
      ["Code digest", code.digest],
      ["Hardware", inWords(run.environment.hardware)],
      ["Finished", run.finished_at],
      ["Time", `${written(run.wall_time_seconds, 1)} s, at most ${written(run.peak_memory_mib, 0)} MiB`],
      ["Reported", `epoch ${run.epoch} of ${run.curves.epoch.at(-1)}` + (run.selected_by ? `, the best by ${run.selected_by}` : "")],
      ["Data", inWords(run.data)],
      ["Run ID", run.run_id],
      ["Weights hash", run.weights_hash],
    ]),
    make("h3", {}, "Metrics at the reported epoch"),
    table("Metrics at the reported epoch", ["Metric", ...splits], metrics.map((metric) => [nameOf(metric), ...splits.map((split) => run.metrics[split][metric] ?? null)]), 6),
    make("h3", {}, "Settings"),
    table("Settings", ["Setting", "Value"], flat(run.config)),
    make("h3", {}, "Software"),
    make("p", {}, `Python ${run.environment.python}, ${inWords(run.environment.packages)}`));
}

function closed() {
  before = null;
  one("back").hidden = true;
  if (location.hash.startsWith("#run=")) history.replaceState(null, "", location.pathname);
}

// ---- Figures --------------------------------------------------------------------------------------------------------

const probe = document.body.appendChild(make("span", { hidden: true }));
const tone = (name) => {  // as rgb(…), because Plotly does not know light-dark(…)
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
};
const colour = (group) => group.colour[dark() ? 1 : 0];

function draw(id, traces, layout, label) {
  const axis = { gridcolor: tone("line"), linecolor: tone("line"), zeroline: false, automargin: true };
  const { xaxis, yaxis, ...others } = layout;
  const plot = one(id);
  plot.setAttribute("role", "group");
  plot.setAttribute("aria-label", label);
  Plotly.react(plot, traces, {
    font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: tone("ink") },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", margin: { l: 12, r: 12, t: 12, b: 12 },
    showlegend: false, hovermode: "closest", hoverlabel: { bgcolor: tone("grid"), bordercolor: tone("muted"), font: { color: tone("ink") } },
    xaxis: { ...axis, ...xaxis }, yaxis: { ...axis, ...yaxis }, ...others,
  }, { responsive: true, displayModeBar: false, doubleClick: "reset" });
  if (!plot.dataset.listens) {
    plot.dataset.listens = "yes";
    plot.on("plotly_click", ({ points: [point] }) => chosen(point));
  }
}

function chosen({ data: { meta }, customdata }) {
  if (meta?.run) openRecord(meta.run);
  else if (meta?.claims) one(`claim-${customdata}`).querySelector("button.number").click();
}

const OUTCOMES = {
  "reproduces": { tone: "fill", symbol: "circle" },
  "not shown": { tone: "muted", symbol: "square" },
  "direction only": { tone: "entmax", symbol: "diamond" },
  "does not reproduce": { tone: "against", symbol: "x" },
  "open": { tone: "muted", symbol: "circle-open" },
};

// From the least to the greatest value within 1.5 interquartile ranges of the quartiles: no outlier squeezes the others.
function usualRange(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const [low, high] = [0.25, 0.75].map((share) => sorted[Math.round(share * (sorted.length - 1))]);
  const usual = sorted.filter((value) => value >= low - 1.5 * (high - low) && value <= high + 1.5 * (high - low));
  return [usual[0], usual.at(-1)];
}

const CHARTS = { levels: "levels, as a share of 1", differences: "differences, in points" };

function drawClaims() {
  if (!one("levels")) return;
  const drawn = data.claims.map((claim, place) => ({ ...claim, place })).filter((claim) => claim.mean !== null);
  const missing = data.claims.length - drawn.length;
  const edges = Object.keys(CHARTS).map((id) => drawChart(id, drawn.filter((claim) => `${claim.kind}s` === id)));
  const outside = edges[0] + edges[1];
  one("undrawn").textContent = (missing ? `${missing} numbers are not drawn: no run has reached their epoch. ` : "")
    + (outside ? `${outside} of ${drawn.length} points ${outside === 1 ? "stands" : "stand"} at the edge of a chart, with the value that lies outside of it.` : "");
}

// Returns the number of points that stand at the edge, because the axes would have to grow for them.
function drawChart(id, claims) {
  one(id).hidden = !claims.length;
  if (!claims.length) return 0;
  const [least, most] = usualRange(claims.flatMap((claim) => [claim.published, claim.mean]));
  const room = 0.06 * (most - least || 1);
  const range = [least - room, most + room];
  const side = ({ published, mean }) =>
    published < range[0] ? "left" : published > range[1] ? "right" : mean < range[0] ? "down" : mean > range[1] ? "up" : null;
  const outside = claims.filter(side);  // beside each other, where they would cover each other
  const placed = (value, claim) => {
    const step = room * outside.indexOf(claim);
    return value < range[0] ? range[0] + step : value > range[1] ? range[1] - step : value;
  };
  const traces = Object.entries(OUTCOMES).map(([outcome, look]) => {
    const own = claims.filter((claim) => claim.outcome === outcome);
    return {
      type: "scatter", mode: "markers", name: outcome, meta: { claims: true }, cliponaxis: false,
      x: own.map((claim) => placed(claim.published, claim)), y: own.map((claim) => placed(claim.mean, claim)), customdata: own.map((claim) => claim.place),
      text: own.map((claim) => `${claim.claim}<br>theirs ${written(claim.published, 3)}, ours ${written(claim.mean, 3)}<br>${outcome}`), hoverinfo: "text",
      marker: { size: own.map((claim) => (side(claim) ? 13 : 10)), color: tone(look.tone), symbol: own.map((claim) => (side(claim) ? `triangle-${side(claim)}` : look.symbol)), opacity: 0.8 },
      error_y: { type: "data", symmetric: false, thickness: 1, width: 3, color: tone(look.tone),
        visible: own.some((claim) => claim.high !== null), array: own.map((claim) => (claim.high === null ? null : claim.high - claim.mean)),
        arrayminus: own.map((claim) => (claim.low === null ? null : claim.mean - claim.low)) },
    };
  });
  const notes = outside.map((claim, place) => ({
    x: placed(claim.published, claim), y: placed(claim.mean, claim), showarrow: false, font: { size: 12 },
    text: [["theirs", claim.published], ["ours", claim.mean]].filter(([, value]) => value < range[0] || value > range[1]).map(([whose, value]) => `${whose} ${written(value, 1)}`).join(", "),
    xanchor: side(claim) === "right" ? "right" : "left", yshift: (side(claim) === "up" ? -15 : 15) * (place + 1),
  }));
  draw(id, traces, {
    shapes: [{ type: "line", x0: range[0], y0: range[0], x1: range[1], y1: range[1], line: { color: tone("muted"), width: 1, dash: "dot" }, layer: "below" }],
    annotations: notes,
    xaxis: { title: { text: `theirs: ${CHARTS[id]}` }, range },
    yaxis: { title: { text: "ours" }, range },
    showlegend: true, legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
  }, `Published ${id} against ours; the tables below have the same numbers`);
  return outside.length;
}

const shownRuns = () =>
  data.experiments[state.experiment].groups.filter((key) => state.shown.has(key)).flatMap((key) => data.groups[key].runs).map((key) => data.runs[key]);
const columnLabel = (column) => data.experiments[state.experiment].columns[column] ?? column;
const named = (run) => `${run.label}, seed ${run.seed}`;

function traceOf(run, x, y, hover, { marker, ...more }) {
  const group = data.groups[run.group];
  return {
    type: "scatter", name: named(run), meta: { run: run.key }, x, y, opacity: 0.85, line: { color: colour(group), dash: group.dash, width: 1.8 },
    marker: { color: colour(group), symbol: group.symbol, line: { color: colour(group), width: 1 }, ...marker },
    hovertemplate: `<b>${run.label}</b>, seed ${run.seed}<br>${hover}<extra></extra>`, ...more,
  };
}

function drawCurves() {
  const traces = shownRuns().filter((run) => run.curves[state.column]).map((run) =>
    traceOf(run, run.curves.epoch, run.curves[state.column], "epoch %{x}: %{y:.5~f}", { mode: run.curves.epoch.length > 50 ? "lines" : "lines+markers", marker: { size: 5 } }));
  draw("curves", traces, { xaxis: { title: { text: "epoch" } }, yaxis: { title: { text: columnLabel(state.column) } } },
    `${columnLabel(state.column)} by epoch; the table below has the same numbers`);
}

const SPARSITY = "test/sparsity";

function drawTradeOff() {
  const { headline } = data.experiments[state.experiment];
  const name = columnLabel(headline);
  const traces = shownRuns().filter((run) => valueOf(run, SPARSITY) !== null && valueOf(run, headline) !== null).map((run) =>
    traceOf(run, [valueOf(run, SPARSITY)], [valueOf(run, headline)], `sparsity %{x:.5~f}<br>${name} %{y:.5~f}`, { mode: "markers", marker: { size: 10 } }));
  one("trade-off-title").textContent = `${name}, against sparsity`;
  draw("trade-off", traces, { xaxis: { title: { text: "sparsity: share of exact zeros" } }, yaxis: { title: { text: name } } },
    `${name} against sparsity; the records of the runs have the same numbers`);
}

function drawPlane() {
  const [low, high] = [0.93, 2.07];
  const qs = Array.from({ length: 101 }, (_, place) => 1 + (place * (high - 1)) / 100);
  const border = qs.map((q) => 2 - 1 / q);
  const quiet = { color: tone("muted"), width: 1 };
  const traces = [
    { x: [...qs, high, 1], y: [...border, low, low], fill: "toself", fillcolor: tone("grid"), line: { width: 0 }, mode: "lines", hoverinfo: "skip" },
    { x: qs, y: border, mode: "lines", line: { ...quiet, width: 1.5, dash: "dash" }, hovertemplate: "r = 2 − 1/q<extra></extra>" },
    { x: [low, high], y: [low, high], mode: "lines", line: quiet, hoverinfo: "skip" },
    { x: [low, high], y: [1, 1], mode: "lines", line: { ...quiet, dash: "dashdot" }, hoverinfo: "skip" },
    { x: [1, 1], y: [low, high], mode: "lines", line: { ...quiet, dash: "dot" }, hoverinfo: "skip" },
    { x: [1, 2, 2], y: [1, 2, 1.5], mode: "markers", marker: { color: tone("muted"), size: 7, symbol: "circle-open" }, text: ["softmax, Shannon", "sparsemax", "2-normmax"], hovertemplate: "%{text}: q %{x}, r %{y}<extra></extra>" },
  ];
  for (const run of shownRuns().filter(({ path }) => path.q.length)) {
    const { epochs, q, r } = run.path;
    const last = q.length - 1;
    const at = (first, between, end) => q.map((_, place) => (place === last ? end : place === 0 ? first : between));
    traces.push(traceOf(run, q, r, "epoch %{customdata}: q %{x:.5~f}, r %{y:.5~f}", {
      mode: "lines+markers", customdata: epochs, marker: { size: at(8, 4, 10), symbol: at("circle-open", "circle", data.groups[run.group].symbol) },
    }));
  }
  const name = (x, y, text, more = {}) => ({ x, y, text, showarrow: false, font: { size: 11, color: tone("muted") }, ...more });
  draw("plane", traces, {
    xaxis: { title: { text: "q" }, range: [low, high], constrain: "domain" },
    yaxis: { title: { text: "r" }, range: [low, high], scaleanchor: "x", constrain: "domain" },
    annotations: [
      name(1.02, 0.96, "softmax", { xanchor: "left" }), name(1.98, 2.02, "sparsemax", { xanchor: "right" }), name(1.97, 1.55, "2-normmax", { xanchor: "right" }),
      name(1.97, 1.03, "Rényi", { xanchor: "right" }), name(0.975, 1.8, "Gaussian", { textangle: -90 }), name(1.75, 1.8, "Tsallis: α-entmax", { textangle: -45 }),
      name(1.62, 1.13, "not concave: r < 2 − 1/q"),
    ],
  }, "Learned orders q and r by epoch; the table of the curves shows each of them");
}

// ---- The curves as a table -------------------------------------------------------------------------------------------

function fillTable() {
  if (!one("numbers").open) return;
  const runs = shownRuns().filter((run) => run.curves[state.column]);
  const epochs = [...new Set(runs.flatMap((run) => run.curves.epoch))].sort((a, b) => a - b);
  const rows = runs.map((run) => [recordButton(run.key, named(run)), ...epochs.map((epoch) => valueOf(run, state.column, epoch))]);
  one("numbers").querySelector("div").replaceChildren(table("The same as a table", ["Run", ...epochs.map((epoch) => `Epoch ${epoch}`)], rows));
}

// ---- One experiment -------------------------------------------------------------------------------------------------

function redraw() {
  drawCurves();
  drawTradeOff();
  drawPlane();
  fillTable();
}

function chip(key) {
  const group = data.groups[key];
  const box = make("input", { type: "checkbox", value: key, onchange: () => { state.shown[box.checked ? "add" : "delete"](key); redraw(); } });
  box.checked = state.shown.has(key);
  const line = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  line.setAttribute("viewBox", "0 0 26 12");
  line.setAttribute("aria-hidden", "true");
  const dashes = { solid: "", dash: "7,3", dashdot: "7,3,2,3", dot: "2,3" }[group.dash] ?? group.dash.replaceAll("px", "");
  line.innerHTML = `<line x1="0" y1="6" x2="26" y2="6" stroke="${colour(group)}" stroke-width="3" stroke-dasharray="${dashes}"/>`;
  return make("label", {}, box, line, group.label);
}

const showChips = () => one("chips").replaceChildren(...data.experiments[state.experiment].groups.map(chip));

function mostTelling(groups) {
  if (groups.length <= 9) return groups;
  const one = new Map();  // of each activation the first configuration, or the one with the default settings
  for (const key of groups) {
    const { activation, default: chosen } = data.groups[key];
    if (chosen || !one.has(activation)) one.set(activation, key);
  }
  return [...one.values()];
}

function meanAndDeviation(values) {
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  const deviation = Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (values.length - 1));
  const text = values.length > 1 ? `${fixed(mean, 3)} ± ${fixed(deviation, 3)}` : fixed(mean, 3);
  return make("span", { "data-value": mean }, text);
}

function showRuns() {
  const experiment = data.experiments[state.experiment];
  const headings = ["Configuration", ...experiment.means.map((column) => columnLabel(column).replace(", test", "")), "Records, by seed"];
  one("means").replaceChildren(table(`Configurations of ${state.experiment}`, headings, experiment.groups.map((key) => {
    const keys = data.groups[key].runs;
    const cells = experiment.means.map((column) => {
      const values = keys.map((name) => valueOf(data.runs[name], column)).filter((value) => value !== null);
      return values.length ? meanAndDeviation(values) : null;
    });
    return [data.groups[key].label, ...cells, make("span", { class: "seeds" }, ...keys.map((name) => recordButton(name, String(data.runs[name].seed))))];
  })));
}

function choose(name) {
  const experiment = data.experiments[name];
  state.experiment = name;
  if (!(state.column in experiment.columns)) state.column = experiment.headline;
  state.shown = new Set(mostTelling(experiment.groups));
  for (const button of one("experiments").children) button.setAttribute("aria-pressed", button.textContent === name);
  one("about").textContent = experiment.about;
  one("column").replaceChildren(...Object.entries(experiment.columns).map(([value, text]) => make("option", { value, selected: value === state.column }, text)));
  showChips();
  showRuns();
  redraw();
}

// ---- Claims ---------------------------------------------------------------------------------------------------------

function filterClaims() {
  const words = one("claim-search").value.trim().toLowerCase();
  const verdict = one("claim-verdict").value;
  const active = Boolean(words || verdict);
  let count = 0;
  for (const kind of document.querySelectorAll("details.kind")) {
    let own = 0;
    for (const row of kind.querySelectorAll("tbody tr")) {
      const text = row.textContent.toLowerCase();
      const found = words.split(/\s+/).every((word) => text.includes(word));
      row.hidden = !(found && (!verdict || row.dataset.outcome === verdict));
      own += !row.hidden;
    }
    kind.hidden = active && !own;
    if (active) kind.open = own > 0;
    count += own;
  }
  one("claim-count").textContent = active ? `${count} of ${data.claims.length} numbers` : "";
}

// ---- Addresses: of a record, #run=EXPERIMENT/HASH/seed-SEED, and of a claim, #claim-PLACE ----------------------------

function follow() {
  const name = decodeURIComponent(location.hash.slice(1));
  if (name.startsWith("run=")) openRecord(name.slice("run=".length));
  const kind = name.startsWith("claim-") && one(name)?.closest("details");
  if (!kind) return;
  one("claim-search").value = one("claim-verdict").value = "";
  filterClaims();
  kind.open = true;
  one(name).scrollIntoView({ block: "center" });
}

// ---- Start ----------------------------------------------------------------------------------------------------------

document.querySelectorAll("table.sortable").forEach(sortable);
document.addEventListener("click", ({ target }) => { if (target.matches("button.number[data-runs]")) openNumbers(target.dataset); });
one("numbers").addEventListener("toggle", fillTable);
one("close").addEventListener("click", () => dialog.close());
one("back").addEventListener("click", () => before());
dialog.addEventListener("close", closed);
dialog.addEventListener("click", ({ target }) => { if (target === dialog) dialog.close(); });
document.addEventListener("themechange", () => { if (state.column) { drawClaims(); showChips(); redraw(); } });
addEventListener("hashchange", follow);
if (one("claim-search")) {
  one("claim-search").addEventListener("input", filterClaims);
  one("claim-verdict").addEventListener("change", filterClaims);
}
one("experiments").append(...Object.keys(data.experiments).map((name) => make("button", { type: "button", onclick: () => choose(name) }, name)));
one("experiments").hidden = one("experiments").children.length === 1;
one("column").addEventListener("change", ({ target }) => { state.column = target.value; redraw(); });
const showAll = (all) => () => { state.shown = new Set(all ? data.experiments[state.experiment].groups : []); showChips(); redraw(); };
one("all").addEventListener("click", showAll(true));
one("none").addEventListener("click", showAll(false));
drawClaims();
choose(state.experiment);
follow();
root.dataset.ready = "yes";
})();
