// The page to find items: tick them and answer all with one key. htmx replaces the table when the query changes.

import { BulkAnswers, MOST_AT_ONCE } from "./bulk.js";
import { apiUrl, byId, element, followHiding, request, requestJson } from "./shared.js";

const form = byId("query");
const rows = byId("rows");
const ticked = new Set();  // ids of items, also of other pages of the same query
let query = byId("hits").dataset.query;
let lastTicked = 0;  // index of a row: with Shift, all rows from there are ticked
let cursor = 0;  // index of the row that has the focus, or had it

const boxes = () => [...rows.querySelectorAll(".tick")];
const bulk = new BulkAnswers(chosenItems, showAgain);

// ---- Ticking

// Without ticks, a key answers the item that has the focus.
function chosenItems() {
  if (ticked.size) return [...ticked];
  const box = document.activeElement?.closest(".tick");
  return box ? [box.value] : [];
}

function tick(box, isTicked) {
  box.checked = isTicked;
  if (isTicked) ticked.add(box.value);
  else ticked.delete(box.value);
}

function drawTicks() {
  for (const box of boxes()) box.checked = ticked.has(box.value);

  const hits = Number(byId("hits").dataset.hits);
  const first = Math.min(hits, MOST_AT_ONCE);
  byId("ticked").textContent = ticked.size ? `${ticked.size.toLocaleString()} ticked` : "Nothing is ticked";
  byId("untick").hidden = !ticked.size;
  byId("ticked").closest(".bulk").classList.toggle("some", ticked.size > 0);
  byId("tick-all").hidden = !hits || ticked.size >= first;
  byId("tick-all").textContent = hits > first
    ? `Tick the first ${first} of ${hits.toLocaleString()}`
    : `Tick all ${hits.toLocaleString()}`;

  const shown = boxes();
  byId("tick-page").hidden = shown.length === hits || shown.every((box) => box.checked);
  byId("tick-page").textContent = `Tick these ${shown.length}`;
  const predicted = filteredPrediction();
  byId("as-predicted").hidden = !predicted || !ticked.size;
  byId("as-predicted").replaceChildren(element("kbd", { text: byId("as-predicted").dataset.key }), ` ${predicted}`);
}

// The class that all rows are predicted as, if their query says so and predictions are shown.
function filteredPrediction() {
  return hidesPredictions() ? "" : new URLSearchParams(query).get("predicted") ?? "";
}

function answerAsPredicted() {
  const predicted = filteredPrediction();
  if (predicted) bulk.answer(predicted);
}

function tickPage() {
  for (const box of boxes()) tick(box, true);
  drawTicks();
}

async function tickAll() {
  // At once, without a request: a key may follow quickly.
  if (boxes().length === Number(byId("hits").dataset.hits)) return tickPage();

  try {
    const page = await requestJson(apiUrl(`/items?${byId("hits").dataset.query}&count=${MOST_AT_ONCE}`));
    ticked.clear();
    for (const { item } of page.items) ticked.add(item);
  } catch (error) {
    bulk.say(error.message);
  }
  drawTicks();
}

rows.addEventListener("click", (event) => {
  const box = event.target.closest(".tick");
  if (!box) return;

  const all = boxes();
  const index = all.indexOf(box);
  const from = event.shiftKey ? lastTicked : index;
  for (const between of all.slice(Math.min(from, index), Math.max(from, index) + 1)) tick(between, box.checked);
  lastTicked = index;
  drawTicks();
});

rows.addEventListener("focusin", (event) => {
  const index = boxes().indexOf(event.target);
  if (index >= 0) cursor = index;
});

byId("tick-all").addEventListener("click", tickAll);
byId("tick-page").addEventListener("click", tickPage);
byId("as-predicted").addEventListener("click", answerAsPredicted);
byId("untick").addEventListener("click", () => { ticked.clear(); drawTicks(); });

// ---- The table

// After an answer: the items may no longer fit the query.
async function showAgain(items) {
  for (const item of items) ticked.delete(item);
  const hadFocus = rows.contains(document.activeElement);

  const response = await request(location.href, undefined, { "hx-request": "true" });
  rows.innerHTML = await response.text();
  window.htmx.process(rows);
  drawTicks();
  if (hadFocus) focusRow(cursor);
}

// Another query has other hits: what is ticked out of sight would be answered unseen.
document.addEventListener("htmx:afterSwap", (event) => {
  if (event.detail.target !== rows) return;
  const { query: newQuery, hits } = byId("hits").dataset;
  if (newQuery !== query) {
    ticked.clear();
    cursor = 0;
  }
  query = newQuery;
  lastTicked = 0;
  bulk.say("");
  byId("announced").textContent = `${Number(hits).toLocaleString()} hits`;
  drawTicks();
});

// Going back in the history shows the rows of an earlier query: put its words back into the fields.
document.addEventListener("htmx:historyRestore", () => location.reload());

document.addEventListener("htmx:responseError", (event) => {
  const { xhr } = event.detail;
  let text = `The server responded with status ${xhr.status}.`;
  try { text = JSON.parse(xhr.responseText).detail ?? text; } catch { /* not from REST */ }
  bulk.say(text);
});

rows.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;

  const { sort, descending, like } = form.elements;
  if (button.matches(".sort")) {
    descending.checked = sort.value === button.dataset.sort && !descending.checked;
    sort.value = button.dataset.sort;
  } else {
    like.value = button.matches(".like") ? button.value : "";
    sort.value = "";
    if (form.elements.meaning) form.elements.meaning.value = "";
  }
  form.requestSubmit();
});

form.elements.meaning?.addEventListener("input", () => { form.elements.like.value = ""; form.elements.sort.value = ""; });

// ---- Predictions

const hidesPredictions = followHiding(byId("hide"), () => drawTicks());

// ---- Keys

function focusRow(index) {
  const all = boxes();
  if (!all.length) return;
  cursor = Math.max(0, Math.min(index, all.length - 1));
  all[cursor].focus();
  all[cursor].closest("tr").scrollIntoView({ block: "nearest" });
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const { target, key } = event;
  const isBox = target.matches(".tick");
  const isEmptyFinder = target.id === "find" && !target.value;
  const isTyping = target.matches("textarea, select, input:not([type=checkbox])");
  if (isTyping && !isEmptyFinder) return;
  if ((key === " " || key === "Enter") && target.closest("button, a, summary")) return;

  if (key === "/") byId("search").focus();
  else if (key === byId("as-predicted").dataset.key) answerAsPredicted();
  else if (key === "ArrowDown" || key === "ArrowUp") moveRow(key === "ArrowDown");
  else if (key === "Enter" && isBox) target.closest("tr").querySelector("a").click();
  else if (key === " " && isBox) return;  // the browser ticks
  else if (bulk.onKey(event)) { /* a class, or undo */ }
  else if (!isEmptyFinder && (key === "j" || key === "k") && document.activeElement.id !== "find") moveRow(key === "j");
  else return;
  event.preventDefault();
}

function moveRow(isDown) {
  const isInTable = document.activeElement?.matches(".tick");
  focusRow(isInTable ? cursor + (isDown ? 1 : -1) : cursor);
}

if (matchMedia("(max-width: 40rem)").matches) byId("filters").open = false;
document.addEventListener("keydown", onKey);
drawTicks();
