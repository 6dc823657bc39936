"use strict";
// Draws what `data` holds. A name out of a file reaches the page as textContent, or escaped by `label` where plotly.js takes markup.

const MOST_COLUMNS = 400, ROWS_OF_A_PAGE = 60, LONGEST_LABEL = 44;
const LIGHT = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999999", "#f0e442"];
const DARK = ["#4da6ff", "#ff8f4d", "#2fd3a2", "#e79fc4", "#ffc04d", "#9bd6f7", "#b5b5b5", "#f7ee77"];
const PRINTED = 660;  // pixels of the width of a page
const $ = (id) => document.getElementById(id);
const state = { run: 0, rank: "", phase: "", group: "", figure: "", order: "model", scale: "auto", filter: "", page: 0, row: 0, column: 0, kept: false };
let data, view, printing = false;

// ---- unpacking ----

async function unpacked(id) {
  const text = atob($(id).textContent), bytes = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at++) bytes[at] = text.charCodeAt(at);  // Uint8Array.from takes fourteen times as long
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

async function start() {
  if (!("DecompressionStream" in window)) throw new Error("this browser cannot unpack the drawings; use one from 2023 or later");
  const library = document.createElement("script");
  library.textContent = await unpacked("library");
  document.head.append(library);
  data = JSON.parse(await unpacked("data"));
  data.runs = data.runs.filter((run) => run.groups);
  $("status").hidden = true;
  if (data.runs.some((run) => run.groups.length)) startLayers();
  if (data.runs.some((run) => run.pictures.length)) startPictures();
  drawPartings();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  // Not plotly's own `responsive`, which takes the height of the box that the drawing itself should give its height.
  let drawn = innerWidth, waiting;
  addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => { if (innerWidth !== drawn && !printing) { drawn = innerWidth; drawAll(); } }, 150);
  });
  addEventListener("beforeprint", () => { printing = true; drawAll(); });
  addEventListener("afterprint", () => { printing = false; drawAll(); });
  document.body.dataset.ready = "yes";
}

// ---- small things ----

const middle = (name, most) => name.length <= most ? name : name.slice(0, most >> 1) + "…" + name.slice(1 - (most >> 1));
const label = (name, most = LONGEST_LABEL) =>
  middle(name, most).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/\$/g, "&#36;");
const placeName = (row, rank) => [rank && row.rank !== null ? "rank " + row.rank : "", row.place].filter((one) => one).join(", ");
const rowName = (row) => (row.target || "(model)") + (row.shownLeaf ? ":" + row.leaf : "") + (placeName(row, true) ? " (" + placeName(row, true) + ")" : "");
const rowKey = (row) => JSON.stringify([row.target, row.leaf, row.rank, row.place, row.dtype]);
const groupKey = (group) => JSON.stringify([group.probe, group.value, group.phase]);
const shown = (number) => Number.isInteger(number) && Math.abs(number) < 1e9 ? String(number) : Number.isFinite(number) ? String(Number(number.toPrecision(7))) : String(number);
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
const tint = (at) => (!printing && matchMedia("(prefers-color-scheme: dark)").matches ? DARK : LIGHT)[at % LIGHT.length];
const distinct = (values) => [...new Set(values)];

function options(select, pairs, chosen) {
  select.replaceChildren(...pairs.map(([value, text]) => Object.assign(document.createElement("option"), { value, textContent: middle(text, 90) })));
  select.value = pairs.some(([value]) => value === chosen) ? chosen : pairs.length ? pairs[0][0] : "";
  return select.value;
}

function points(run, line) {
  const steps = run.axes[line.axis];
  return { steps, numbers: "constant" in line ? steps.map(() => Number(line.constant)) : line.numbers.map(Number) };
}

function where(run, phase, step) {
  const known = run.phases[phase] ? run.phases[phase].epochs : [];
  const last = known.filter(([, first]) => first <= step).pop();
  return last ? `global step ${step}: epoch ${last[0]}, step ${step - last[1]}` : `global step ${step}`;
}

function layout(height, left, more) {
  const ink = printing ? "#000" : color("ink"), line = printing ? "#bbb" : color("line");
  const axis = { gridcolor: line, zerolinecolor: line, linecolor: line, tickfont: { size: 11 }, automargin: false };
  return Object.assign({
    height, margin: { l: left, r: 84, t: 8, b: 32 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: ink, size: 12 },
    showlegend: false, hovermode: "closest", dragmode: "zoom", axis,
  }, more);
}

// The width is given each time, because plotly keeps the one that it found first.
const draw = (id, traces, figure) => Plotly.react(id, traces, { ...figure, width: printing ? PRINTED : $(id).clientWidth || undefined }, config);
const config = { responsive: false, displayModeBar: false, doubleClick: "reset" };

// ---- layers over steps ----

function startLayers() {
  $("layers").hidden = false;
  for (const run of data.runs) for (const group of run.groups) {
    const leaves = distinct(group.rows.map((row) => row.leaf)).length > 1;
    for (const row of group.rows) row.shownLeaf = leaves;
  }
  const names = data.runs.map((run, at) => [String(at), run.name]);
  if (data.runs.length === 2) names.push(["difference", "relative difference of the two"]);
  state.run = options($("run"), names, data.runs.length === 2 ? "difference" : "0");
  $("run-label").hidden = names.length < 2;
  const phases = distinct(data.runs.flatMap((run) => run.groups.map((group) => group.phase)));
  state.phase = options($("phase"), phases.map((phase) => [phase, phase]), phases.includes("train") ? "train" : phases[0]);
  const ranks = distinct(data.runs.flatMap((run) => run.groups.flatMap((group) => group.rows.map((row) => row.rank)))).filter((rank) => rank !== null).sort((a, b) => a - b);
  state.rank = options($("rank"), [["", "all"], ...ranks.map((rank) => [String(rank), String(rank)])], "");
  $("rank-label").hidden = !ranks.length;
  for (const id of ["run", "rank", "phase", "group", "figure", "order", "scale"]) {
    $(id).addEventListener("change", () => { state[id] = $(id).value; state.page = 0; choose(id); });
  }
  $("filter").addEventListener("input", () => { state.filter = $("filter").value; state.page = 0; drawLayers(); });
  $("back").addEventListener("click", () => { state.page -= 1; drawLayers(); });
  $("forth").addEventListener("click", () => { state.page += 1; drawLayers(); });
  $("heat-box").addEventListener("keydown", pressed);
  for (const button of document.querySelectorAll("button[data-show]")) {
    button.addEventListener("click", () => showModule(button.dataset.show));
  }
  choose("phase");
}

// Shows the rows of a module and of all in it, of the group that is chosen where it has some.
function showModule(path) {
  const has = (group) => group.rows.some((row) => matches(row, "=" + path));
  const all = data.runs.flatMap((run) => run.groups).filter((group) => !group.loop && has(group));
  if (!all.length) return;
  const group = all.find((one) => groupKey(one) === state.group) || all.find((one) => one.phase === state.phase) || all[0];
  $("filter").value = state.filter = "=" + path;
  state.page = 0;
  state.phase = $("phase").value = group.phase;
  state.group = groupKey(group);
  choose("phase");
  $("layers").scrollIntoView();
}

function groupsOf(phase) {
  const found = new Map();
  for (const run of data.runs) for (const group of run.groups) {
    if (group.phase === phase && !(group.loop)) {
      const known = found.get(groupKey(group)) || { ...group, figures: [] };
      known.figures = distinct([...known.figures, ...group.figures]);
      found.set(groupKey(group), known);
    }
  }
  return found;
}

function choose(changed) {
  let groups = groupsOf(state.phase);
  if (!groups.size) groups = new Map(data.runs.flatMap((run) => run.groups).filter((one) => one.phase === state.phase).map((one) => [groupKey(one), one]));
  if (changed === "phase") {
    const before = state.group && JSON.parse(state.group);
    const widest = [...groups.keys()].sort((a, b) => groups.get(b).rows.length - groups.get(a).rows.length)[0];
    const like = [...groups.keys()].find((key) => { const one = JSON.parse(key); return before && one[0] === before[0] && one[1] === before[1]; });
    const named = [...groups].map(([key, group]) => [key, `${group.probe}: ${group.stage ? group.stage + " " : ""}${group.value}`]);
    state.group = options($("group"), named, like || widest);
  }
  if (changed === "phase" || changed === "group") {
    const group = groups.get(state.group);
    const named = group.figures.map((name) => [name, (name || "the number itself") + (group.stored ? "" : " of each capture")]);
    const best = ["std", "l2", "mean", ""].find((name) => group.figures.includes(name));
    state.figure = options($("figure"), named, group.figures.includes(state.figure) && state.figure ? state.figure : best);
  }
  drawLayers();
}

function matches(row, pattern) {
  if (pattern.startsWith("=")) return row.target === pattern.slice(1) || row.target.startsWith(pattern.slice(1) + ".");
  const name = rowName(row).toLowerCase(), parts = pattern.toLowerCase().split("*").map((part) => part.trim());
  let at = 0;
  return parts.every((part) => { const found = name.indexOf(part, at); at = found + part.length; return found >= 0; });
}

const isShown = (row) => state.rank === "" || row.rank === null || String(row.rank) === state.rank;

function rowsOf(run) {
  const group = run.groups.find((one) => groupKey(one) === state.group);
  return (group ? group.rows : []).filter((row) => state.figure in row.figures && isShown(row));
}

const lineOf = (run, row) => ({ row, name: rowName(row), ...points(run, row.figures[state.figure]) });

function relative(line, other) {
  const known = new Map(other.steps.map((step, at) => [step, other.numbers[at]]));
  const both = line.steps.map((step, at) => [step, line.numbers[at], known.get(step)]).filter(([, , b]) => b !== undefined);
  const apart = ([, a, b]) => Object.is(a, b) || a === b ? 0 : Math.abs(b - a) / Math.max(Math.abs(a), Math.abs(b));
  return { ...line, steps: both.map(([step]) => step), numbers: both.map(apart) };
}

// The rows that are asked for, and what makes their lines; numbers are read for those that are drawn only, where the order allows it.
function wanted() {
  const differ = state.run === "difference", run = data.runs[differ ? 0 : Number(state.run)];
  const others = differ ? new Map(rowsOf(data.runs[1]).map((row) => [rowKey(row), row])) : null;
  const rows = rowsOf(run).filter((row) => matches(row, state.filter) && (!differ || others.has(rowKey(row))));
  const line = (row) => differ ? relative(lineOf(run, row), lineOf(data.runs[1], others.get(rowKey(row)))) : lineOf(run, row);
  if (state.order === "name") rows.sort((a, b) => rowName(a).localeCompare(rowName(b), "en", { numeric: true }));
  if (state.order === "largest" || state.order === "odd") {
    const size = (numbers) => numbers.reduce((most, one) => Number.isFinite(one) ? Math.max(most, Math.abs(one)) : most, -1);
    const odd = (numbers) => numbers.filter((one) => !Number.isFinite(one)).length;
    const weight = new Map(rows.map((row) => [row, (state.order === "odd" ? odd : size)(line(row).numbers)]));
    rows.sort((a, b) => weight.get(b) - weight.get(a));
  }
  return { rows, line };
}

function columnsOf(lines) {
  const steps = distinct(lines.flatMap((line) => line.steps)).sort((a, b) => a - b);
  if (steps.length <= MOST_COLUMNS) {
    const at = new Map(steps.map((step, column) => [step, column]));
    return { centers: steps, place: (step) => at.get(step), width: 1 };
  }
  const low = steps[0], width = Math.ceil((steps[steps.length - 1] - low + 1) / MOST_COLUMNS);
  const count = Math.floor((steps[steps.length - 1] - low) / width) + 1;
  return { centers: Array.from({ length: count }, (_, column) => low + column * width + (width - 1) / 2), place: (step) => Math.floor((step - low) / width), width };
}

// Of several captures in a cell the one that is not finite is shown, else the one of the largest magnitude.
function grid(lines, columns) {
  return lines.map((line) => {
    const cells = new Array(columns.centers.length).fill(null);
    line.steps.forEach((step, at) => {
      const column = columns.place(step), number = line.numbers[at], before = cells[column];
      if (!before || (Number.isFinite(before.number) && (!Number.isFinite(number) || Math.abs(number) > Math.abs(before.number)))) cells[column] = { number, step };
    });
    return cells;
  });
}

function colors(cells) {
  const finite = cells.flat().filter((cell) => cell && Number.isFinite(cell.number)).map((cell) => cell.number).sort((a, b) => a - b);
  if (!finite.length) return { of: (number) => number, zmin: 0, zmax: 1, colorscale: "Viridis" };
  const low = finite[0], high = finite[finite.length - 1];
  const log = state.scale === "log" || (state.scale === "auto" && low > 0 && high / low > 200);
  const sizes = log ? finite.map(Math.abs).filter((size) => size > 0).map(Math.log10) : [];
  if (sizes.length) {
    const ends = [sizes.reduce((a, b) => Math.min(a, b)), sizes.reduce((a, b) => Math.max(a, b))];
    const ticks = Array.from({ length: 7 }, (_, at) => ends[0] + (ends[1] - ends[0]) * at / 6);
    return { of: (number) => number === 0 ? null : Math.log10(Math.abs(number)), zmin: ends[0], zmax: ends[1], colorscale: "Viridis", title: "log", ticks };
  }
  const clip = state.scale === "clipped" ? 0.02 : 0;
  const ends = [finite[Math.floor(clip * (finite.length - 1))], finite[Math.ceil((1 - clip) * (finite.length - 1))]];
  if (ends[0] < 0 && ends[1] > 0) {
    const size = Math.max(-ends[0], ends[1]);
    return { of: (number) => number, zmin: -size, zmax: size, colorscale: "RdBu", title: "" };
  }
  return { of: (number) => number, zmin: ends[0], zmax: ends[1], colorscale: "Viridis", title: "" };
}

function heatTraces(cells, x, y, scale) {
  const odd = cells.map((row) => row.map((cell) => cell && !Number.isFinite(cell.number) ? 1 : null));
  const bar = { thickness: 12, len: 1, outlinewidth: 0, tickfont: { size: 10 }, exponentformat: "power" };
  if (scale.ticks) Object.assign(bar, { tickvals: scale.ticks, ticktext: scale.ticks.map((tick) => (10 ** tick).toPrecision(2)) });
  const shared = { type: "heatmap", x, y, hoverinfo: "none", xgap: 0, ygap: y.length <= 40 ? 1 : 0 };
  const traces = [{ ...shared, z: cells.map((row) => row.map((cell) => cell && Number.isFinite(cell.number) ? scale.of(cell.number) : null)),
    zmin: scale.zmin, zmax: scale.zmax, colorscale: scale.colorscale, colorbar: bar }];
  if (odd.some((row) => row.some((one) => one))) traces.push({ ...shared, z: odd, colorscale: [[0, color("odd")], [1, color("odd")]], showscale: false });
  return traces;
}

function drawLayers() {
  const { rows: all, line: made } = wanted(), pages = Math.max(1, Math.ceil(all.length / ROWS_OF_A_PAGE));
  state.page = Math.min(Math.max(state.page, 0), pages - 1);
  const lines = all.slice(state.page * ROWS_OF_A_PAGE, (state.page + 1) * ROWS_OF_A_PAGE).map(made), columns = columnsOf(lines), cells = grid(lines, columns);
  const left = Math.round(Math.min(260, 0.36 * $("heat-box").clientWidth, 24 + 6.4 * Math.max(6, ...lines.map((line) => Math.min(line.name.length, LONGEST_LABEL)))));
  const centers = columns.centers, gap = centers.length > 1 ? centers[1] - centers[0] : 1;
  view = { lines, columns, cells, left, range: [centers[0] - gap / 2, centers[centers.length - 1] + (centers[centers.length - 1] - (centers[centers.length - 2] ?? centers[0] - 1)) / 2] };
  state.row = Math.min(state.row, Math.max(lines.length - 1, 0));
  state.column = Math.min(state.column, Math.max(columns.centers.length - 1, 0));
  const y = lines.map((_, at) => at), height = 56 + Math.max(90, lines.length * (lines.length > 30 ? 15 : 19));
  const most = Math.max(8, Math.floor((left - 16) / 6.2));
  const figure = layout(height, left, {});
  figure.xaxis = { ...figure.axis, title: { text: "global step" + (state.phase === "train" ? "" : " of " + label(state.phase)), font: { size: 11 } }, showgrid: false, zeroline: false, range: view.range };
  figure.yaxis = { ...figure.axis, autorange: "reversed", fixedrange: true, tickvals: y, ticktext: lines.map((line) => label(line.name, most)), showgrid: false, zeroline: false };
  draw("heat", lines.length ? heatTraces(cells, columns.centers, y, colors(cells)) : [], figure).then(() => link("heat", hovered, clicked));
  $("page").textContent = all.length ? `rows ${state.page * ROWS_OF_A_PAGE + 1} to ${state.page * ROWS_OF_A_PAGE + lines.length} of ${all.length}` : "no row has this name and figure";
  $("back").disabled = state.page === 0;
  $("forth").disabled = state.page === pages - 1;
  $("pages").hidden = pages === 1 && all.length > 0;
  say(lines, columns);
  drawLoops();
  if (lines.length) showCell();
}

function say(lines, columns) {
  const said = [];
  const thinned = lines.filter((line) => line.steps.length < line.row.captures).length;
  const apart = state.run === "difference" ? null : data.runs[Number(state.run)];
  if (apart && thinned) {
    const unread = lines.filter((line) => line.row.read < line.row.captures).length;
    if (unread) said.push(`Figures are of evenly spaced captures in ${unread} of these rows.`);
    if (apart.thinned_lines) said.push(`${apart.thinned_lines} lines have more captures than the page holds: of each of ${apart.intervals} intervals the smallest, the largest and a number that is not finite are kept.`);
  }
  if (columns.width > 1) said.push(`A column is ${columns.width} steps and shows the number of the largest magnitude, or one that is not finite.`);
  if (state.run === "difference") said.push("|A − B| divided by the larger of |A| and |B|, at the steps that both runs have.");
  said.push("Cells that are NaN or infinite are red; cells without a capture are empty.");
  $("said").textContent = said.join(" ");
}

const linked = new WeakSet();
let following = false;
function link(id, hover, click) {
  const div = $(id);
  if (linked.has(div)) return;
  linked.add(div);
  if (hover) div.on("plotly_hover", (event) => hover(event.points[0]));
  if (click) div.on("plotly_click", (event) => click(event.points[0]));
  div.on("plotly_relayout", (change) => {
    const range = change["xaxis.autorange"] ? null : "xaxis.range[0]" in change ? [change["xaxis.range[0]"], change["xaxis.range[1]"]] : undefined;
    if (range === undefined || following) return;
    following = true;
    view.zoom = range;
    for (const other of ["heat", "curve", "loops"]) if (other !== id && linked.has($(other))) Plotly.relayout(other, { "xaxis.range": range || view.range });
    following = false;
  });
}

const hovered = (point) => { if (!state.kept) moveTo(...point.pointIndex); };
const clicked = (point) => { moveTo(...point.pointIndex); state.kept = true; showCell(); };
function moveTo(row, column) { state.row = row; state.column = column; showCell(); }

function pressed(event) {
  const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], Home: [0, -1e9], End: [0, 1e9] };
  if (event.key === "Enter") { state.kept = true; showCell(); }
  else if (event.key === "Escape") { state.kept = false; showCell(); }
  else if (moves[event.key] && view.lines.length) {
    const [down, right] = moves[event.key], limit = (value, most) => Math.min(Math.max(value, 0), most);
    state.kept = true;
    moveTo(limit(state.row + down, view.lines.length - 1), limit(state.column + right, view.columns.centers.length - 1));
  } else return;
  event.preventDefault();
}

function showCell() {
  const line = view.lines[state.row], cell = view.cells[state.row][state.column], run = state.run === "difference" ? data.runs[0] : data.runs[Number(state.run)];
  $("cell-name").textContent = line.name;
  $("cell-value").textContent = cell ? `${state.run === "difference" ? "relative difference of " : ""}${state.figure || "number"} ${shown(cell.number)}` : "no capture";
  $("cell-place").textContent = cell ? where(run, state.phase, cell.step) : "";
  $("cell-row").textContent = `${line.row.captures} captures in this row, ${line.row.dtype}` + (state.kept ? "; kept, Escape releases it" : "");
  const step = cell ? cell.step : view.columns.centers[state.column];
  drawCurve(line, step);
  drawBars(run, line.row, step);
  const size = view.columns.centers, half = (at) => (at > 0 ? (size[at] - size[at - 1]) / 2 : size.length > 1 ? (size[1] - size[0]) / 2 : 0.5);
  Plotly.relayout("heat", { shapes: [{ type: "rect", x0: size[state.column] - half(state.column), x1: size[state.column] + half(Math.min(state.column + 1, size.length - 1)),
    y0: state.row - 0.5, y1: state.row + 0.5, line: { color: color("ink"), width: state.kept ? 3 : 1.5 } }] });
}

function lineTraces(lines, axis) {
  return lines.flatMap(({ steps, numbers, name, at }) => {
    const shade = tint(at), finite = numbers.map((one) => Number.isFinite(one) ? one : null);
    const odd = steps.filter((_, place) => finite[place] === null), high = finite.reduce((most, one) => one === null ? most : Math.max(most, one), -Infinity);
    const traces = [{ type: "scatter", mode: steps.length > 150 ? "lines" : "lines+markers", x: steps, y: finite, yaxis: axis, name: label(name), line: { color: shade, width: 1.5 },
      marker: { size: 4 }, hovertemplate: "step %{x}: %{y}<extra></extra>" }];
    if (odd.length) traces.push({ type: "scatter", mode: "markers", x: odd, y: odd.map(() => Number.isFinite(high) ? high : 0), yaxis: axis, showlegend: false,
      marker: { symbol: "x", size: 9, color: color("odd") }, hovertemplate: "step %{x}: not finite<extra></extra>" });
    return traces;
  });
}

function drawCurve(line, step) {
  const key = rowKey(line.row);
  const lines = data.runs.flatMap((run, at) => rowsOf(run).filter((row) => rowKey(row) === key).map((row) => ({ ...lineOf(run, row), name: run.name, at })));
  const figure = layout(170, view.left, { showlegend: data.runs.length > 1, legend: { orientation: "h", y: 1.25, font: { size: 11 } } });
  figure.xaxis = { ...figure.axis, range: view.zoom || view.range };
  figure.yaxis = { ...figure.axis, exponentformat: "power", title: { text: label(state.figure || "number", 16), font: { size: 11 } } };
  figure.shapes = [{ type: "line", x0: step, x1: step, yref: "paper", y0: 0, y1: 1, line: { color: color("accent"), width: 1, dash: "dot" } }];
  draw("curve", lineTraces(lines), figure).then(() => link("curve"));
}

function drawLoops() {
  const found = new Map();
  data.runs.forEach((run, at) => {
    for (const group of run.groups.filter((one) => one.loop && one.phase === state.phase)) for (const row of group.rows.filter(isShown)) for (const name of Object.keys(row.figures)) {
      const title = row.leaf + (name ? " " + name : "") + (row.place ? " (" + row.place + ")" : "");
      if (!found.has(title)) found.set(title, []);
      const of = row.rank === null ? "" : "rank " + row.rank, lines = found.get(title);
      const called = [data.runs.length > 1 || !of ? run.name : "", of].filter((one) => one).join(", ");
      lines.push({ ...points(run, row.figures[name]), name: called, at: row.rank === null ? at : lines.length });
    }
  });
  const still = [...found.keys()].filter((name) => isConstant(found.get(name)));
  const moving = [...found.keys()].filter((name) => !still.includes(name)).sort((a, b) => (b === "loop.loss") - (a === "loop.loss"));
  const names = moving.slice(0, 6), each = 1 / Math.max(names.length, 1);
  const short = (name) => name.replace(/^loop\./, ""), others = moving.slice(names.length);
  $("constants").textContent = [
    still.length ? "Constant: " + still.map((name) => short(name) + " = " + found.get(name)[0].numbers[0]).join(", ") + "." : "",
    others.length ? "Not drawn: " + others.map(short).join(", ") + "." : "",
  ].join(" ").trim();
  $("loops").hidden = !names.length;
  if (!names.length) return;
  const figure = layout(40 + 92 * names.length, view.left, {});
  figure.xaxis = { ...figure.axis, range: view.range, anchor: "y" + (names.length > 1 ? names.length : "") };
  names.forEach((name, at) => {
    figure["yaxis" + (at ? at + 1 : "")] = { ...figure.axis, domain: [1 - (at + 1) * each + (at < names.length - 1 ? 0.04 : 0), 1 - at * each], exponentformat: "power", nticks: 4,
      title: { text: label(short(name), 14), font: { size: 11 } } };
  });
  draw("loops", names.flatMap((name, at) => lineTraces(found.get(name), "y" + (at ? at + 1 : ""))), figure).then(() => link("loops"));
}

// A curve of at least two points that has the same value everywhere, in every run.
function isConstant(lines) {
  return lines.every((line) => line.numbers.length > 1 && line.numbers.every((value) => value === lines[0].numbers[0]));
}

function nearest(steps, step) {
  let best = 0;
  steps.forEach((one, at) => { if (Math.abs(one - step) < Math.abs(steps[best] - step)) best = at; });
  return best;
}

function drawBars(run, row, step) {
  const same = (one) => one.kind === "histogram" && one.target === row.target && one.phase === state.phase && (row.rank === null || one.rank === row.rank);
  const found = run.pictures.find((one) => same(one) && one.leaf === row.leaf) || run.pictures.find(same);
  $("bars").hidden = $("bars-place").hidden = !found;
  if (!found) return;
  const at = nearest(found.steps, step);
  const figure = layout(220, 44, { bargap: 0.05 });
  figure.margin = { l: 44, r: 8, t: 8, b: 60 };
  figure.xaxis = { ...figure.axis, type: "category", nticks: 8, tickangle: -45, tickfont: { size: 9 } };
  figure.yaxis = { ...figure.axis };
  draw("bars", [{ type: "bar", x: found.labels.map((name) => label(name, 30)), y: found.rows[at].map(Number), marker: { color: color("accent") }, hovertemplate: "%{x}: %{y}<extra></extra>" }], figure);
  $("bars-place").textContent = `Elements by bin of ${found.probe} (${found.leaf}), ${where(run, state.phase, found.steps[at])}.`;
}

// ---- values as pictures ----

let picked;

function startPictures() {
  $("pictures").hidden = false;
  const all = data.runs.flatMap((run, at) => run.pictures.map((picture, place) => [`${at}/${place}`,
    (data.runs.length > 1 ? run.name + ": " : "") + `${picture.probe}/${picture.target}:${picture.leaf}${picture.phase === "train" ? "" : "@" + picture.phase} (${picture.rank !== undefined && run.pictures.some((one) => one.rank) ? "rank " + picture.rank + ", " : ""}${picture.kind})`]));
  options($("picture-series"), all, (all.find(([, name]) => name.endsWith("(picture)")) || all[0])[0]);
  $("picture-series").addEventListener("change", () => { $("shot").value = 0; drawPicture(); });
  $("shot").addEventListener("input", drawPicture);
  drawPicture();
}

function drawPicture() {
  const [at, place] = $("picture-series").value.split("/").map(Number), run = data.runs[at];
  picked = { run, one: run.pictures[place] };
  if (picked.one.kind === "samples") return drawSamples(picked.one);
  const many = picked.one.kind === "picture" ? picked.one.shots.length : 0;
  $("shot-label").hidden = many < 2;
  $("shot").max = Math.max(many - 1, 0);
  const made = picked.one.kind === "picture" ? mosaic(picked.one, picked.one.shots[Number($("shot").value)]) : overSteps(picked.one);
  const left = run.pictures_left_out;
  $("picture-about").textContent = made.about + (left ? ` The page has no room for the pictures of ${left} more series.` : "");
  $("picture-value").textContent = "";
  const width = $("picture").clientWidth, figure = layout(made.square ? Math.max(220, Math.min(620, width * made.cells.length / made.cells[0].length * 0.7)) : 420, made.square ? 30 : 110, {});
  figure.xaxis = { ...figure.axis, showgrid: false, zeroline: false, visible: !made.square, title: { text: "global step", font: { size: 11 } }, constrain: "domain" };
  figure.yaxis = { ...figure.axis, showgrid: false, zeroline: false, visible: !made.square, autorange: made.square ? "reversed" : true, ...(made.square ? { scaleanchor: "x", constrain: "domain" } : {}),
    title: { text: made.title || "", font: { size: 11 } }, ...(made.ticks ? { tickvals: made.y, ticktext: made.ticks } : {}) };
  const before = state.scale;
  state.scale = "linear";
  const scale = colors(made.cells);
  state.scale = before;
  draw("picture", heatTraces(made.cells, made.x, made.y, scale).map((trace) => ({ ...trace, xgap: 0, ygap: 0 })), figure).then(linkPicture);
  picked.say = (point) => made.say(...point.pointIndex);
}

function linkPicture() {
  if (linked.has($("picture"))) return;
  linked.add($("picture"));
  $("picture").on("plotly_hover", (event) => { $("picture-value").textContent = picked.say(event.points[0]); });
}

// A row is a point. Up to MOST_CLASSES labels have a color, a shape and a line in the legend each, which hides its points when it is clicked.
const MOST_CLASSES = 24, SHAPES = ["circle", "square", "diamond"];
function drawSamples(one) {
  $("shot-label").hidden = true;
  const classes = distinct(one.labels).sort((a, b) => a - b), classed = classes.length > 0 && classes.length <= MOST_CLASSES, percent = (share) => (100 * share).toFixed(0) + " %";
  const left = picked.run.projections_left_out;
  $("picture-about").textContent = `${one.probe}/${one.target}:${one.leaf}; ${one.x.length} of the ${one.rows} rows of epoch ${one.epoch} as points: their first two principal components, ` +
    `with ${percent(one.share[0])} and ${percent(one.share[1])} of the variance` + (one.labelled ? `; color: ${one.labelled}` : "") +
    (one.left ? `; ${one.left} rows that are not finite are left out` : "") + "." + (left ? ` ${left} more series are not projected.` : "");
  $("picture-value").textContent = "";
  const places = one.x.map((_, at) => at), groups = classed ? classes.map((name) => places.filter((at) => one.labels[at] === name)) : [places];
  const color_of = (at) => classed ? tint(at) : one.labels.length ? one.labels.map(Number) : color("accent");
  const figure = layout(480, 56, { showlegend: classed && classes.length > 1, legend: { font: { size: 11 } } });
  figure.xaxis = { ...figure.axis, title: { text: "component 1", font: { size: 11 } }, constrain: "domain" };
  figure.yaxis = { ...figure.axis, title: { text: "component 2", font: { size: 11 } }, constrain: "domain", scaleanchor: "x" };
  draw("picture", groups.map((rows, at) => ({ type: "scatter", mode: "markers", x: rows.map((row) => one.x[row]), y: rows.map((row) => one.y[row]), name: classed ? String(classes[at]) : "", hoverinfo: "none",
    customdata: rows, marker: { color: color_of(at), symbol: SHAPES[Math.floor(at / LIGHT.length)], size: 7, opacity: 0.8, colorscale: "Viridis", showscale: !classed && one.labels.length > 0 } })), figure).then(linkPicture);
  picked.say = (point) => {
    const row = point.customdata;
    return [one.ids.length ? "sample " + one.ids[row] : "", one.labels.length ? `${one.labelled} ${one.labels[row]}` : "", where(picked.run, one.phase, one.steps[row]),
      `(${shown(one.x[row])}, ${shown(one.y[row])})`].filter(Boolean).join("; ");
  };
}

function mosaic(one, shot) {
  const rows = shot.rows.length, columns = shot.columns.length, across = shot.tiles.length === 1 ? 1 : Math.ceil(Math.sqrt(shot.tiles.length * rows / columns)), down = Math.ceil(shot.tiles.length / across);
  const cells = Array.from({ length: down * (rows + 1) - 1 }, () => new Array(across * (columns + 1) - 1).fill(null));
  shot.tiles.forEach((tile, at) => tile.forEach((number, place) => {
    cells[Math.floor(at / across) * (rows + 1) + Math.floor(place / columns)][at % across * (columns + 1) + place % columns] = { number: Number(number) };
  }));
  const axes = one.axes, depth = shot.shape.length, tiled = depth > 2;
  const about = [`${one.probe}/${one.target}:${one.leaf}`, where(picked.run, one.phase, shot.step), `shape ${shot.shape.map((size, at) => `${axes[at] ?? at}=${size}`).join(", ")}`];
  if (depth > 3) about.push("index 0 of " + axes.slice(0, depth - 3).join(", "));
  if (tiled) about.push(`each tile is one ${axes[depth - 3] ?? "index"}, ${shot.tiles.length} of ${shot.shape[depth - 3]}`);
  about.push(`down: ${axes[depth - 2] ?? "rows"}, across: ${axes[depth - 1] ?? "columns"}`);
  if (rows < shot.shape[depth - 2] || columns < shot.shape[depth - 1]) about.push(`${rows} x ${columns} evenly spaced cells of ${shot.shape[depth - 2]} x ${shot.shape[depth - 1]}`);
  about.push(`${one.shots.length} of ${one.captures} captures are in this page`);
  const say = (y, x) => {
    const cell = cells[y][x], tile = Math.floor(y / (rows + 1)) * across + Math.floor(x / (columns + 1));
    if (!cell) return "";
    const index = [...new Array(Math.max(depth - 3, 0)).fill(0), ...(tiled ? [tile] : []), shot.rows[y % (rows + 1)], shot.columns[x % (columns + 1)]];
    return `[${index.join(", ")}] = ${shown(cell.number)}`;
  };
  return { cells, x: cells[0].map((_, at) => at), y: cells.map((_, at) => at), square: true, about: about.join("; ") + ".", say };
}

function overSteps(one) {
  const cells = one.places.map((_, at) => one.rows.map((row) => row[at] === null ? null : { number: Number(row[at]) }));
  const name = (at) => one.labels.length ? one.labels[one.places[at]] : `${one.axes[0]} ${one.places[at]}`;
  const about = `${one.probe}/${one.target}:${one.leaf}; ${one.labels.length ? "elements by bin" : "elements"} over steps, ${one.rows.length} of ${one.captures} captures.`;
  return { cells, x: one.steps, y: one.places, about, ticks: one.labels.length ? one.places.map((at) => one.places.length <= 40 || at % 4 === 0 ? label(one.labels[at], 16) : "") :
      one.places.length <= 20 ? one.places.map(String) : null, title: one.labels.length ? "" : label(one.axes[0], 24),
    say: (y, x) => cells[y][x] ? `${name(y)}, ${where(picked.run, one.phase, one.steps[x])}: ${shown(cells[y][x].number)}` : "" };
}

// ---- two runs: where they part ----

function drawPartings() {
  const rows = data.partings.filter((one) => one.step !== null);
  if (new Set(rows.map((one) => one.step)).size < 2) {
    if (rows.length) $("partings").textContent = `All ${rows.length} series that differ do so first at global step ${rows[0].step}.`;
    return;
  }
  const left = Math.round(Math.min(320, 0.4 * $("partings").clientWidth)), named = rows.length <= 80;
  const figure = layout(70 + (named ? rows.length * 15 : 500), left, {});
  figure.xaxis = { ...figure.axis, title: { text: "global step of the first capture that differs", font: { size: 11 } }, rangemode: "tozero" };
  figure.yaxis = { ...figure.axis, autorange: "reversed", tickvals: named ? rows.map((_, at) => at) : [], ticktext: named ? rows.map((one) => label(one.series, Math.floor(left / 6.4))) : [] };
  draw("partings", [{ type: "scatter", mode: "markers", x: rows.map((one) => one.step), y: rows.map((_, at) => at), marker: { color: rows.map((one) => one.different / Math.max(one.compared, 1)), cmin: 0, cmax: 1, colorscale: "Viridis",
    showscale: true, size: 8, colorbar: { thickness: 12, tickformat: ".0%", title: { text: "differ", font: { size: 10 } } } },
    text: rows.map((one) => `${label(one.series)}: ${one.different} of ${one.compared} differ, first at step ${one.step}`), hovertemplate: "%{text}<extra></extra>" }], figure);
}

function drawAll() {
  if (!$("layers").hidden) drawLayers();
  if (!$("pictures").hidden) drawPicture();
  drawPartings();
}

start().catch((error) => { $("status").hidden = false; $("status").textContent = "The drawings cannot be shown: " + error.message; throw error; });
