// The map: every item is a point on a canvas, 100,000 of them if need be. A click opens the nearest item.

import { apiUrl, byId, element, itemUrl, request, requestJson, showItem, start } from "./shared.js";

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

const canvas = byId("map");
const context = canvas.getContext("2d");

let points = null;  // count, x, y and predicted class of every item
let ldm = null;  // LDM of every item, NaN where it is not known
let labels = new Map();  // index of an item -> index of its class
let withdrawn = new Set();  // indices of withdrawn items, also of those that the map still shows
let view = { x: 0, y: 0, zoom: 1 };
let opened = -1;  // index of the item that is shown beside the map
let latestLoad = 0;  // a newer load makes an older one stop

const classColour = (index) => CLASS_COLOURS[index % CLASS_COLOURS.length];
const themeColour = (name) => getComputedStyle(document.body).getPropertyValue(name);
const pixelRatio = () => window.devicePixelRatio || 1;

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
  byId("status").textContent = isSlow ? "Computing the layout. This takes a while; you can leave the page…" : "Drawing…";

  try {
    const response = await waitForLayout(layout, isSlow ? 2000 : 300, load);
    if (!response) return;

    points = readPoints(await response.arrayBuffer());
    const marks = await requestJson(apiUrl("/labels"));
    labels = new Map(marks.labels);
    withdrawn = new Set(marks.withdrawn.filter((index) => index < points.count));
    const version = response.headers.get("x-model-version");
    byId("status").textContent = describeMap(version);
    draw();

    if (version !== "0") await loadLdm(load);
  } catch (error) {
    byId("status").textContent = error.message;
  }
}

async function loadLdm(load) {
  const response = await waitForLayout("ldm", 1000, load);
  if (!response) return;

  ldm = new Float32Array(await response.arrayBuffer(), 4);
  if (byId("colour").value === "ldm") draw();
}

function describeMap(version) {
  const model = version === "0" ? "no model yet" : `model ${version}`;
  const count = points.count - withdrawn.size;
  return `${count.toLocaleString()} items, ${labels.size.toLocaleString()} labelled, ${model}.`;
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

// Few points are large and easy to hit; many are small and leave the structure visible.
function pointSize() {
  const size = Math.max(SMALLEST_POINT, Math.min(LARGEST_POINT, 200 / Math.sqrt(points.count)));
  return size * Math.min(2, Math.sqrt(view.zoom));
}

// Groups of points of one colour and size, so that the context changes its colour only a few times. Large ones come last.
function groupPoints() {
  const mode = byId("colour").value;
  const ranks = mode === "ldm" ? rankLdm() : null;
  const rest = themeColour("--rest");
  const groups = new Map();

  for (let index = 0; index < points.count; index++) {
    if (withdrawn.has(index)) continue;
    let colour = rest;
    let scale = 1;

    if (mode === "label" && labels.has(index)) {
      colour = classColour(labels.get(index));
      scale = LABELLED_SCALE;
    } else if (mode === "predicted" && points.predicted[index] >= 0) {
      colour = classColour(points.predicted[index]);
    } else if (mode === "ldm" && ranks && ranks[index] >= 0) {
      colour = LDM_COLOURS[ranks[index]];
    }

    const key = `${scale} ${colour}`;
    if (!groups.has(key)) groups.set(key, { scale, colour, indices: [] });
    groups.get(key).indices.push(index);
  }

  return [...groups.values()].sort((first, second) => first.scale - second.scale);
}

function draw() {
  const box = canvas.getBoundingClientRect();
  canvas.width = box.width * pixelRatio();
  canvas.height = box.height * pixelRatio();
  if (!points) return;

  for (const { scale, colour, indices } of groupPoints()) drawPoints(indices, colour, scale * pointSize());

  if (opened >= 0) drawRing(opened);
  drawLegend();
}

function drawPoints(indices, colour, size) {
  const side = size * pixelRatio();
  const isRound = size >= ROUND_FROM;
  context.fillStyle = colour;

  for (const index of indices) {
    const [x, y] = position(index);
    const isVisible = x > -side && y > -side && x < canvas.width + side && y < canvas.height + side;
    if (!isVisible) continue;

    if (isRound) {
      context.beginPath();
      context.arc(x, y, side / 2, 0, 2 * Math.PI);
      context.fill();
    } else {
      context.fillRect(x - side / 2, y - side / 2, side, side);
    }
  }
}

function drawRing(index) {
  const [x, y] = position(index);
  context.strokeStyle = themeColour("--ink");
  context.lineWidth = 2 * pixelRatio();
  context.beginPath();
  const radius = Math.max(SMALLEST_RING, LABELLED_SCALE * pointSize() / 2 + RING_GAP);
  context.arc(x, y, radius * pixelRatio(), 0, 2 * Math.PI);
  context.stroke();
}

function drawLegend() {
  const mode = byId("colour").value;
  const rest = themeColour("--rest");
  const entries = mode === "ldm"
    ? [
      [LDM_COLOURS[0], "smallest tenth: flips most easily"],
      [LDM_COLOURS[4], "middle"],
      [LDM_COLOURS[9], "largest tenth"],
      [rest, ldm ? "not known" : "not computed yet"],
    ]
    : [
      ...start.classes.map((name, index) => [classColour(index), name]),
      [rest, mode === "label" ? "no label" : "no prediction"],
    ];

  byId("legend").replaceChildren(...entries.map(([colour, text]) => {
    const dot = element("i");
    dot.style.background = colour;
    return element("li", {}, dot, text);
  }));
}

// ---- Opening items

async function openItem(index) {
  opened = index;
  draw();

  const item = await requestJson(apiUrl(`/item?index=${index}`));
  const facts = [item.label ? `Label: ${item.state}` : item.state || "Not labelled"];
  if (points.predicted[index] >= 0) facts.push(`predicted ${start.classes[points.predicted[index]]}`);
  if (ldm && !Number.isNaN(ldm[index])) facts.push(`LDM ${ldm[index].toPrecision(2)}`);

  const content = showItem(item);
  content.classList.add("opened");
  byId("opened").replaceChildren(
    element("h2", { text: "Item" }),
    content,
    element("p", { class: "soft", text: facts.join(" · ") }),
    element("p", {}, element("a", { href: itemUrl(item.item), text: "Open item" })));
}

function nearestPoint(x, y) {
  let nearest = -1;
  let least = (CLICK_RADIUS * pixelRatio()) ** 2;

  for (let index = 0; index < points.count; index++) {
    if (withdrawn.has(index)) continue;
    const [px, py] = position(index);
    const distance = (px - x) ** 2 + (py - y) ** 2;
    if (distance < least) {
      least = distance;
      nearest = index;
    }
  }

  return nearest;
}

// ---- Moving and zooming

let drag = null;

function eventPosition(event) {
  const box = canvas.getBoundingClientRect();
  const scale = canvas.width / box.width;
  return [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
}

canvas.addEventListener("pointerdown", (event) => {
  drag = { from: eventPosition(event), x: view.x, y: view.y, hasMoved: false };
  canvas.setPointerCapture(event.pointerId);
});

canvas.addEventListener("pointermove", (event) => {
  if (!drag || !points) return;

  const [x, y] = eventPosition(event);
  const dx = x - drag.from[0];
  const dy = y - drag.from[1];
  if (Math.hypot(dx, dy) > DRAG_DISTANCE) drag.hasMoved = true;

  if (drag.hasMoved) {
    view.x = drag.x - dx / horizontalScale();
    view.y = drag.y + dy / verticalScale();
    requestAnimationFrame(draw);
  }
});

canvas.addEventListener("pointerup", (event) => {
  if (drag && !drag.hasMoved && points) {
    const index = nearestPoint(...eventPosition(event));
    if (index >= 0) openItem(index);
  }
  drag = null;
});

canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  const factor = event.deltaY < 0 ? 1.25 : 0.8;
  view.zoom = Math.min(200, Math.max(0.5, view.zoom * factor));
  requestAnimationFrame(draw);
}, { passive: false });

byId("reset").addEventListener("click", () => { view = { x: 0, y: 0, zoom: 1 }; draw(); });
byId("colour").addEventListener("change", draw);
byId("layout").addEventListener("change", load);
byId("tools").addEventListener("submit", (event) => event.preventDefault());
addEventListener("resize", draw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
load();
