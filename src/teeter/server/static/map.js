// The map: every item is a point on a canvas, 100,000 of them if need be. A click opens the nearest item, and what a
// lasso catches is shown 30 items at a time, to be answered with one key.
//
// The points are drawn once into a canvas of their own, small ones pixel by pixel. What follows the pointer (the ring
// around a point, the lasso) is drawn over a copy of it. A grid finds the point under the pointer.

import { BulkAnswers } from "./bulk.js";
import {
  apiUrl, byId, element, followHiding, imageUrl, itemUrl, request, requestJson, showItem, start,
} from "./shared.js";

// Distinguishable with colour blindness [Okabe and Ito 2008; Tol 2021].
const CLASS_COLOURS = [
  "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9",
  "#999933", "#882255", "#44aa99", "#aa4499", "#ddcc77", "#332288",
];
// From the smallest tenth of LDM, whose labels flip most easily, to the largest.
const LDM_COLOURS = [
  "#d7301f", "#e6550d", "#f16913", "#fd8d3c", "#fdae6b", "#c6b5a5", "#9eb5c8", "#7fa7c4", "#6a97ba", "#5a86ab",
];
const SMALLEST_POINT = 1.5;  // in pixels of the page, as all sizes here
const LARGEST_POINT = 7;
const ROUND_FROM = 4;  // smaller points are drawn as squares, which is faster and looks the same
const LABELLED_SCALE = 1.6;
const SMALLEST_RING = 9;  // radius of the ring around the opened point
const RING_GAP = 3;  // between a large point and its ring
const CLICK_RADIUS = 14;
const DRAG_DISTANCE = 6;
const EDGE = 1.15;  // where the outermost points are
const CELLS = 128;  // of the grid, along each side
const SHOWN = 30;  // items of the selection at a time
const HINT_DELAY = 120;
const MOST_HINTS = 500;

const canvas = byId("map");
const context = canvas.getContext("2d");
const base = document.createElement("canvas");

let points = null;  // count, x, y and predicted class of every item
let grid = null;  // indices of points by cell
let ldm = null;  // LDM of every item, NaN where it is not known
let labels = new Map();  // index of an item -> index of its class
let withdrawn = new Set();  // indices of withdrawn items, also of those that the map still shows
let colours = null;  // per point, the place of its colour in `palette`; 0 is the colour of the rest
let palette = [];
let view = { x: 0, y: 0, zoom: 1 };
let opened = -1;  // index of the item that is shown beside the map
let hovered = -1;
let lasso = null;  // the line that is being drawn
let selection = [];  // indices of items that a lasso caught and that wait to be shown
let shown = [];  // those that are shown
let latestLoad = 0;  // a newer load makes an older one stop
let hasChosenColour = false;

const themeColour = (name) => getComputedStyle(document.body).getPropertyValue(name).trim();
const pixelRatio = () => window.devicePixelRatio || 1;

// Beyond the list, hues that are far from the one before.
function classColour(index) {
  if (index < CLASS_COLOURS.length) return CLASS_COLOURS[index];
  context.fillStyle = `hsl(${(index * 137.5) % 360} 60% ${index % 2 ? 40 : 60}%)`;
  return context.fillStyle;  // as #rrggbb
}

// ---- Loading

// Layouts are computed in the background: ask until the result is there. Returns null if a newer load has begun.
async function waitForLayout(layout, delay, load) {
  for (;;) {
    const response = await request(apiUrl(`/map?kind=${layout}`));
    if (load !== latestLoad) return null;
    if (response.status !== 202) return response;

    const state = await response.json();
    if (state.state === "failed") throw new Error(state.detail);
    await new Promise((resolve) => setTimeout(resolve, delay));
    if (load !== latestLoad) return null;
  }
}

// The server sends the count, then one column after the other, four bytes per value.
function readPoints(data) {
  const count = new Int32Array(data, 0, 1)[0];
  const column = (index, Type) => new Type(data, 4 + 4 * count * index, count);
  return { count, x: column(0, Float32Array), y: column(1, Float32Array), predicted: column(2, Int32Array) };
}

async function load() {
  const load = ++latestLoad;
  const layout = byId("layout").value;
  const isSlow = layout === "tsne";

  try {
    if (isSlow) {
      // The principal components are there at once, and stay until the neighbourhoods are computed.
      const ready = await request(apiUrl("/map?kind=tsne"));
      if (ready.status === 202 && !points) await show(await waitForLayout("pca", 300, load), load);
      if (load !== latestLoad) return;
      if (ready.status === 202) say(" Neighbourhoods are being computed. This takes a while; you can leave the page…");
    }
    await show(await waitForLayout(layout, isSlow ? 2000 : 300, load), load);
    if (load === latestLoad && byId("colour").value === "ldm") await loadLdm(load);
  } catch (error) {
    byId("status").textContent = error.message;
  }
}

async function show(response, load) {
  if (!response) return;
  points = readPoints(await response.arrayBuffer());
  grid = makeGrid();
  await loadMarks();
  if (load !== latestLoad) return;

  const version = response.headers.get("x-model-version");
  if (!hasChosenColour) byId("colour").value = version === "0" || isHiding() ? "label" : "predicted";
  points.version = version;
  say("");
  recolour();
}

async function loadMarks() {
  const marks = await requestJson(apiUrl("/labels"));
  labels = new Map(marks.labels);
  withdrawn = new Set(marks.withdrawn.filter((index) => index < points.count));
  for (const index of marks.blind) if (index < points.count) points.predicted[index] = -1;
}

async function loadLdm(load) {
  const response = await waitForLayout("ldm", 1000, load);
  if (!response) return;

  ldm = new Float32Array(await response.arrayBuffer(), 4);
  recolour();
}

function say(more) {
  const model = points.version === "0" ? "no model yet" : `model ${points.version}`;
  const count = points.count - withdrawn.size;
  byId("status").textContent =
    `${count.toLocaleString()} items, ${labels.size.toLocaleString()} labelled, ${model}.${more}`;
}

// ---- Drawing

const horizontalScale = () => canvas.width / 2.3 * view.zoom;
const verticalScale = () => canvas.height / 2.3 * view.zoom;

function position(index) {
  return [
    canvas.width / 2 + (points.x[index] - view.x) * horizontalScale(),
    canvas.height / 2 - (points.y[index] - view.y) * verticalScale(),
  ];
}

// Rank LDM in ten steps: by value, a few small ones would drown among equals.
function rankLdm() {
  if (!ldm) return null;

  const known = [...ldm.keys()].filter((index) => index < points.count && !Number.isNaN(ldm[index]));
  known.sort((first, second) => ldm[first] - ldm[second]);

  const ranks = new Int8Array(points.count).fill(-1);
  known.forEach((index, rank) => { ranks[index] = Math.floor(10 * rank / known.length); });
  return ranks;
}

// Give every point its colour, and draw all.
function recolour() {
  if (!points) return;
  const mode = byId("colour").value;
  const ranks = mode === "ldm" ? rankLdm() : null;
  const ofClasses = mode === "ldm" ? LDM_COLOURS : start.classes.map((_, index) => classColour(index));
  palette = [themeColour("--rest"), ...ofClasses];
  colours = new Uint16Array(points.count);

  for (let index = 0; index < points.count; index++) {
    if (mode === "predicted") colours[index] = points.predicted[index] + 1;
    else if (ranks) colours[index] = ranks[index] + 1;
  }
  if (mode === "label") for (const [index, label] of labels) if (index < points.count) colours[index] = label + 1;

  draw();
  drawLegend(mode);
}

// Few points are large and easy to hit; many are small and leave the structure visible.
function pointSize() {
  const size = Math.max(SMALLEST_POINT, Math.min(LARGEST_POINT, 200 / Math.sqrt(points.count)));
  return size * Math.min(2, Math.sqrt(view.zoom));
}

function draw() {
  const box = canvas.getBoundingClientRect();
  canvas.width = base.width = Math.max(1, Math.round(box.width * pixelRatio()));
  canvas.height = base.height = Math.max(1, Math.round(box.height * pixelRatio()));
  if (!points || !colours) return;

  const scale = byId("colour").value === "label" ? LABELLED_SCALE : 1;
  const size = pointSize();
  const drawPoints = size < ROUND_FROM ? drawSquares : drawCircles;
  drawPoints(size * pixelRatio(), size * scale * pixelRatio());
  drawOver();
}

// Points in the colour of the rest come first, so that no other is hidden below them.
function forEachVisible(margin, action) {
  const [across, down] = [horizontalScale(), verticalScale()];
  const left = canvas.width / 2 - view.x * across;
  const top = canvas.height / 2 + view.y * down;

  for (const isRest of [true, false]) {
    for (let index = 0; index < points.count; index++) {
      if ((colours[index] === 0) !== isRest || withdrawn.has(index)) continue;
      const x = left + points.x[index] * across;
      const y = top - points.y[index] * down;
      // An item without a place has NaN, which is in no range.
      if (x > -margin && y > -margin && x < canvas.width + margin && y < canvas.height + margin) action(index, x, y);
    }
  }
}

function drawSquares(restSize, size) {
  const brush = base.getContext("2d");
  const image = brush.createImageData(base.width, base.height);
  const pixels = new Uint32Array(image.data.buffer);
  // Red is the lowest byte of a pixel.
  const inks = palette.map((colour) => {
    const [red, green, blue] = [1, 3, 5].map((from) => parseInt(colour.slice(from, from + 2), 16));
    return (0xff000000 | (blue << 16) | (green << 8) | red) >>> 0;
  });

  forEachVisible(size, (index, x, y) => {
    const side = Math.max(1, Math.round(colours[index] ? size : restSize));
    const left = Math.round(x - side / 2);
    const top = Math.round(y - side / 2);
    const right = Math.min(base.width, left + side);
    const bottom = Math.min(base.height, top + side);
    for (let row = Math.max(0, top); row < bottom; row++) {
      for (let column = Math.max(0, left); column < right; column++) {
        pixels[row * base.width + column] = inks[colours[index]];
      }
    }
  });
  brush.putImageData(image, 0, 0);
}

function drawCircles(restSize, size) {
  const brush = base.getContext("2d");
  brush.clearRect(0, 0, base.width, base.height);
  forEachVisible(size, (index, x, y) => {
    brush.fillStyle = palette[colours[index]];
    brush.beginPath();
    brush.arc(x, y, (colours[index] ? size : restSize) / 2, 0, 2 * Math.PI);
    brush.fill();
  });
}

function drawOver() {
  context.clearRect(0, 0, canvas.width, canvas.height);
  context.drawImage(base, 0, 0);
  context.strokeStyle = themeColour("--ink");
  context.lineWidth = 2 * pixelRatio();

  for (const index of new Set([opened, hovered, ...shown])) if (index >= 0) drawRing(index);
  if (!lasso) return;
  context.beginPath();
  for (const [x, y] of lasso) context.lineTo(x, y);
  context.closePath();
  context.stroke();
}

function drawRing(index) {
  const [x, y] = position(index);
  context.beginPath();
  const radius = Math.max(SMALLEST_RING, LABELLED_SCALE * pointSize() / 2 + RING_GAP);
  context.arc(x, y, radius * pixelRatio(), 0, 2 * Math.PI);
  context.stroke();
}

// At most one drawing per frame, however often the pointer moves.
let waiting = null;
function drawSoon(action) {
  if (waiting === null) requestAnimationFrame(() => { const next = waiting; waiting = null; next(); });
  if (waiting !== draw) waiting = action;
}

function drawLegend(mode) {
  const rest = palette[0];
  const entries = mode === "ldm"
    ? [
      [LDM_COLOURS[0], "smallest tenth: flips most easily"],
      [LDM_COLOURS[4], "middle"],
      [LDM_COLOURS[9], "largest tenth"],
      [rest, ldm ? "not known" : "not computed yet"],
    ]
    : [
      ...start.classes.map((name, index) => [palette[index + 1], name]),
      [rest, mode === "label" ? "no label" : "no prediction"],
    ];

  byId("legend").replaceChildren(...entries.map(([colour, text]) => {
    const dot = element("i");
    dot.style.background = colour;
    return element("li", {}, dot, text);
  }));
}

// ---- Finding points

const cellOf = (value) => Math.max(0, Math.min(CELLS - 1, Math.floor((value + EDGE) / (2 * EDGE) * CELLS)));

// The points by cell: those of cell k are at the places starts[k] to starts[k + 1] of `indices`.
function makeGrid() {
  const cells = new Int32Array(points.count).fill(-1);
  const starts = new Int32Array(CELLS * CELLS + 1);
  for (let index = 0; index < points.count; index++) {
    if (Number.isNaN(points.x[index])) continue;
    cells[index] = cellOf(points.y[index]) * CELLS + cellOf(points.x[index]);
    starts[cells[index] + 1]++;
  }
  for (let cell = 0; cell < CELLS * CELLS; cell++) starts[cell + 1] += starts[cell];

  const next = starts.slice();
  const indices = new Int32Array(points.count);
  for (let index = 0; index < points.count; index++) if (cells[index] >= 0) indices[next[cells[index]]++] = index;
  return { starts, indices };
}

function nearestPoint(x, y) {
  const radius = CLICK_RADIUS * pixelRatio();
  const across = (value) => (value - canvas.width / 2) / horizontalScale() + view.x;
  const up = (value) => (canvas.height / 2 - value) / verticalScale() + view.y;
  let nearest = -1;
  let least = radius ** 2;

  for (let row = cellOf(up(y + radius)); row <= cellOf(up(y - radius)); row++) {
    const from = grid.starts[row * CELLS + cellOf(across(x - radius))];
    const to = grid.starts[row * CELLS + cellOf(across(x + radius)) + 1];
    for (const index of grid.indices.subarray(from, to)) {
      if (withdrawn.has(index)) continue;
      const [px, py] = position(index);
      const distance = (px - x) ** 2 + (py - y) ** 2;
      if (distance < least) [least, nearest] = [distance, index];
    }
  }
  return nearest;
}

// Whether a line from the point to the right crosses the lasso an odd number of times.
function isInside(line, x, y) {
  let inside = false;
  let [lastX, lastY] = line.at(-1);
  for (const [cornerX, cornerY] of line) {
    const isBetween = (cornerY > y) !== (lastY > y);
    if (isBetween && x < (lastX - cornerX) * (y - cornerY) / (lastY - cornerY) + cornerX) inside = !inside;
    [lastX, lastY] = [cornerX, cornerY];
  }
  return inside;
}

// ---- Opening items

const isHiding = followHiding(byId("hide"), () => {
  if (isHiding() && byId("colour").value !== "label") byId("colour").value = "label";
  for (const option of byId("colour").options) option.disabled = isHiding() && option.value !== "label";
  if (points) recolour();
});

function describe(index, item) {
  const facts = [item.label ? `Label: ${item.state}` : item.state || "Not labelled"];
  if (!isHiding()) {
    if (points.predicted[index] >= 0) facts.push(`predicted ${start.classes[points.predicted[index]]}`);
    if (ldm && !Number.isNaN(ldm[index])) facts.push(`LDM ${ldm[index].toPrecision(2)}`);
  }
  return facts.join(" · ");
}

async function openItem(index) {
  opened = index;
  drawOver();

  const item = await requestJson(apiUrl(`/item?index=${index}`));
  const content = showItem(item);
  content.classList.add("opened");
  byId("opened").replaceChildren(
    element("h2", { text: "Item" }),
    content,
    element("p", { class: "soft", text: describe(index, item) }),
    element("p", {}, element("a", { href: itemUrl(item.item), text: "Open item" })));
}

// What the pointer is on, in a few words.
const hints = new Map();
let hintTimer = 0;

function hover(index, event) {
  const hint = byId("hint");
  if (index !== hovered) {
    hovered = index;
    hint.hidden = true;
    clearTimeout(hintTimer);
    if (index >= 0) hintTimer = setTimeout(() => showHint(index), HINT_DELAY);
    drawSoon(drawOver);
  }
  const box = canvas.parentElement.getBoundingClientRect();
  hint.style.left = `${Math.min(event.clientX - box.left + 16, Math.max(0, box.width - 280))}px`;
  hint.style.top = `${event.clientY - box.top + 16}px`;
}

async function showHint(index) {
  if (!hints.has(index)) {
    if (hints.size >= MOST_HINTS) hints.clear();
    hints.set(index, requestJson(apiUrl(`/items?index=${index}`)).then((page) => page.items[0]));
  }
  const item = await hints.get(index).catch(() => hints.delete(index) && null);
  if (!item || hovered !== index) return;

  const content = item.kind === "image"
    ? element("img", { src: imageUrl(item.item), alt: "" })
    : element("span", { text: item.excerpt || item.item });
  byId("hint").replaceChildren(content, element("small", { text: describe(index, item) }));
  byId("hint").hidden = false;
}

// ---- The selection

const bulk = new BulkAnswers(
  () => [...byId("chosen").querySelectorAll("input:checked")].map((box) => box.value),
  async (answered) => {
    await loadMarks();
    hints.clear();
    recolour();
    say("");
    if (answered.length) await showNext();
  });

async function select(line) {
  const xs = line.map(([x]) => x);
  const ys = line.map(([, y]) => y);
  const [left, right, top, bottom] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  selection = [];
  forEachVisible(0, (index, x, y) => {
    const isNear = x >= left && x <= right && y >= top && y <= bottom;
    if (isNear && isInside(line, x, y)) selection.push(index);
  });
  selection.sort((first, second) => first - second);
  bulk.say("");
  await showNext();
  byId("selected").scrollIntoView({ block: "end" });
}

// Show the next items of the selection: only what is in view is answered.
async function showNext() {
  shown = selection.slice(0, SHOWN);
  selection = selection.slice(SHOWN);
  byId("selected").hidden = !shown.length;
  let rows = [];
  if (shown.length) {
    const query = shown.map((index) => `index=${index}`).join("&");
    rows = (await requestJson(apiUrl(`/items?${query}&count=${SHOWN}`))).items;
  }
  byId("chosen").replaceChildren(...rows.map(makeCard));
  byId("following").hidden = !selection.length;
  drawChosen();
  drawOver();
}

function makeCard(item) {
  const content = item.kind === "image"
    ? element("img", { src: imageUrl(item.item), alt: `Image ${item.item}` })
    : element("span", { text: item.excerpt || item.item });
  const box = element("input", { type: "checkbox", value: item.item, checked: "" });
  const facts = [item.state, item.predicted && !isHiding() ? `predicted ${item.predicted}` : ""].filter(Boolean);
  return element("li", {}, element("label", {}, box, content, element("small", { text: facts.join(" · ") })));
}

function drawChosen() {
  const count = bulk.chosen().length;
  byId("ticked").textContent = shown.length ? `${count} ticked` : "Nothing is selected";
  byId("ticked").closest(".bulk").classList.toggle("some", count > 0);
  byId("untick").hidden = !count;
  byId("caught").textContent = selection.length ? `${selection.length.toLocaleString()} more are selected.` : "";
}

byId("chosen").addEventListener("change", drawChosen);
byId("following").addEventListener("click", showNext);
byId("untick").addEventListener("click", () => {
  for (const box of byId("chosen").querySelectorAll("input")) box.checked = false;
  drawChosen();
});
byId("clear").addEventListener("click", () => { selection = []; showNext(); });

document.addEventListener("keydown", (event) => {
  const { target, key } = event;
  if (event.ctrlKey || event.metaKey || event.altKey || !shown.length) return;
  const isEmptyFinder = target.id === "find" && !target.value;
  const isBox = target.type === "checkbox";
  if (!isBox && !isEmptyFinder && target.closest("input, textarea, select")) return;
  if ((key === " " || key === "Enter") && (isBox || target.closest("button, a, summary"))) return;
  if (bulk.onKey(event)) event.preventDefault();
});

// ---- Moving and zooming

let drag = null;

function eventPosition(event) {
  const box = canvas.getBoundingClientRect();
  const scale = canvas.width / box.width;
  return [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
}

canvas.addEventListener("pointerdown", (event) => {
  const from = eventPosition(event);
  const isLasso = event.shiftKey || byId("lasso").ariaPressed === "true";
  if (points) hover(-1, event);
  drag = { from, x: view.x, y: view.y, hasMoved: false };
  if (isLasso) lasso = [from];
  canvas.setPointerCapture(event.pointerId);
});

canvas.addEventListener("pointermove", (event) => {
  if (!points) return;
  const [x, y] = eventPosition(event);
  if (!drag) {
    if (event.pointerType === "mouse") hover(nearestPoint(x, y), event);
    return;
  }

  const dx = x - drag.from[0];
  const dy = y - drag.from[1];
  if (Math.hypot(dx, dy) > DRAG_DISTANCE) drag.hasMoved = true;
  if (!drag.hasMoved) return;

  if (lasso) {
    lasso.push([x, y]);
    drawSoon(drawOver);
  } else {
    view.x = drag.x - dx / horizontalScale();
    view.y = drag.y + dy / verticalScale();
    drawSoon(draw);
  }
});

canvas.addEventListener("pointerup", (event) => {
  const line = lasso;
  const wasClick = drag && !drag.hasMoved && points;
  drag = null;
  lasso = null;
  if (line && !wasClick) select(line).catch((error) => bulk.say(error.message));
  else if (wasClick) {
    const index = nearestPoint(...eventPosition(event));
    if (index >= 0) openItem(index);
  }
  drawOver();
});

canvas.addEventListener("pointercancel", () => { drag = lasso = null; drawOver(); });
canvas.addEventListener("pointerleave", (event) => { if (points) hover(-1, event); });

// The place at (x, y) stays where it is.
function zoom(factor, x = canvas.width / 2, y = canvas.height / 2) {
  const before = [(x - canvas.width / 2) / horizontalScale(), (canvas.height / 2 - y) / verticalScale()];
  view.zoom = Math.min(200, Math.max(0.5, view.zoom * factor));
  view.x += before[0] - (x - canvas.width / 2) / horizontalScale();
  view.y += before[1] - (canvas.height / 2 - y) / verticalScale();
  drawSoon(draw);
}

canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  zoom(event.deltaY < 0 ? 1.25 : 0.8, ...eventPosition(event));
}, { passive: false });

byId("closer").addEventListener("click", () => zoom(1.5));
byId("farther").addEventListener("click", () => zoom(1 / 1.5));
byId("lasso").addEventListener("click", ({ currentTarget }) => {
  currentTarget.ariaPressed = String(currentTarget.ariaPressed !== "true");
});
byId("reset").addEventListener("click", () => { view = { x: 0, y: 0, zoom: 1 }; draw(); });
byId("colour").addEventListener("change", () => {
  hasChosenColour = true;
  recolour();
  if (byId("colour").value === "ldm" && !ldm && points?.version !== "0") {
    loadLdm(latestLoad).catch((error) => { byId("status").textContent = error.message; });
  }
});
byId("layout").addEventListener("change", load);
byId("tools").addEventListener("submit", (event) => event.preventDefault());
addEventListener("resize", () => drawSoon(draw));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
load();
