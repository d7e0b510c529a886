// The labelling page, in three modes: label new items, review labels that may be wrong, decide disagreements.
//
// Items are fetched before they are needed, so an answer shows the next item at once and is sent in the background
// (outbox.js). Nothing is called saved before the server has said that it is on disk.

import { ClassFinder, typesToFind } from "./class_finder.js";
import { Outbox, isUndo } from "./outbox.js";
import { apiUrl, breakable, byId, element, imageUrl, percent, requestJson, showItem, start } from "./shared.js";

const isReviewing = start.mode === "suspects";
const isDeciding = start.mode === "decide";
const hasSeveral = start.several;  // items may have several labels: keys choose them, Enter confirms

const FETCHED = 40;  // items that one request asks for
const LOW = 12;  // fetch more when fewer are left
const PRELOADED = 6;  // images that the browser loads in advance
const MAX_COLUMNS = 5;  // class buttons in a row
const SHOWN_COPIES = 3;  // near copies listed below an item
const RECENT = 10;  // answers listed beside the item
const POLL = 3000;  // milliseconds between two looks at the campaign's state
const SURE = 0.8;  // probability from which a model is not called unsure

let queue = start.questions;  // items to show next
let current = null;  // the item that is shown
let isFinished = false;  // nothing is left
let heldByOthers = 0;  // items that other annotators have open
let isFetching = false;
let isWaiting = start.is_waiting;  // nothing is asked for before the button is pressed
let fetchTimer = null;
let labelled = start.labelled;
let recent = start.recent.map((given) => ({ question: given, answer: given.answer, state: "saved", number: given.number }));
const savedAt = new Map();  // item -> time at which its answer was saved
const skipped = new Set();  // disagreements and suspects that were skipped on this page

const outbox = new Outbox({
  onChange: drawSaved,
  onSent: handleSent,
  onFailed: handleFailure,
});

const comment = byId("comment");
const adding = byId("adding");  // null for those who may not add a class
const HIDDEN_KEY = "teeter-suggestions-hidden";
const suggestSwitch = byId("suggest");  // null if the campaign has no suggestions

const chosen = new Set();  // labels that are chosen and not confirmed yet
const buttons = start.classes.map(makeClassButton);
const finder = new ClassFinder(buttons, choose);

// ---- Sending

function handleSent(entry, result) {
  byId("alarm").hidden = true;

  if (!isUndo(entry)) {
    markSaved(entry.body.item, result.labelled ?? labelled, result.number);
  } else if (isDeciding && result) {
    fetchItems();
  } else if (!result) {
    const text = "Nothing was undone, because you have since answered or undone something in another tab.";
    showAlarm(text, "Reload", () => location.reload());
  }
}

function handleFailure(entry, error, isFinal) {
  if (error.isOtherAnnotator) {
    showAlarm(`${error.message} This browser keeps the unsent answers of ${start.annotator} (${outbox.length}).`);
    return;
  }

  const more = outbox.length > 1 ? ` and ${outbox.length - 1} more` : "";
  const text = `Not saved: the answer to ${entry.body.item ?? "the last item"}${more}. ${error.message}`;

  if (isFinal) showAlarm(text, "Discard this answer", () => discard(entry));
  else showAlarm(`${text} Unsaved answers stay in this browser and will be sent again.`);
}

function discard(entry) {
  recent = recent.filter((given) => given.question.item !== entry.body.item || given.state === "saved");
  byId("alarm").hidden = true;
  outbox.discard(entry);
  drawRecent();
}

function markSaved(item, count, number) {
  savedAt.set(item, performance.now());
  const given = recent.find((entry) => entry.question.item === item && entry.state !== "saved");
  if (given) Object.assign(given, { state: "saved", number });

  labelled = count;
  drawCount();
  drawRecent();
  if (queue.length < LOW || isDeciding) fetchItems();
}

// ---- Fetching items

async function fetchItems() {
  if (isFetching || isWaiting || (isFinished && start.mode === "label")) return;
  isFetching = true;

  try {
    if (isReviewing) await fetchSuspects();
    else if (isDeciding) await fetchDisagreements();
    else await fetchQuestions();
  } catch (error) {
    if (!queue.length && !current) {
      byId("stage").replaceChildren(element("p", { class: "soft", text: `${error.message} Trying again…` }));
    }
    fetchLater(2000);
  }

  isFetching = false;
  if (!current) showNext();
}

function fetchLater(delay) {
  clearTimeout(fetchTimer);
  fetchTimer = setTimeout(fetchItems, delay);
}

// Items that must not be shown although the server, which answered a little earlier, still lists them.
function answeredItems(since) {
  const items = new Set(outbox.entries.map((entry) => entry.body.item));
  for (const [item, time] of savedAt) if (time >= since) items.add(item);
  if (current) items.add(current.item);
  return items;
}

async function fetchQuestions() {
  const began = performance.now();
  const result = await requestJson(apiUrl(`/questions?n=${FETCHED}`));
  const answered = answeredItems(began);
  const fresh = new Map(result.questions.filter((item) => !answered.has(item.item)).map((item) => [item.item, item]));

  // What is queued keeps its place. An item that went to another annotator leaves the queue.
  const queued = queue.filter((item) => item.isCorrection || fresh.has(item.item));
  const updated = queued.map((item) => item.isCorrection ? item : fresh.get(item.item));
  const present = new Set(updated.map((item) => item.item));
  queue = [...updated, ...[...fresh.values()].filter((item) => !present.has(item.item))];

  isFinished = result.finished && !queue.length;
  heldByOthers = result.held_by_others;
  byId("news").textContent = result.news;
  addExplanation(result.questions);

  if (!queue.length && !isFinished) fetchLater(500);
  preloadImages();
}

// Probabilities and neighbours may arrive after the item itself.
function addExplanation(items) {
  if (!current || current.explanation) return;

  const explained = items.find((item) => item.item === current.item);
  if (explained) {
    Object.assign(current, explained);
    drawSuggestion();
    drawWhy();
  }
}

async function fetchSuspects() {
  const result = await requestJson(apiUrl("/suspects"));
  if (result.state === "waiting") return fetchLater(500);

  if (result.state === "failed") {
    isFinished = true;
    throw new Error(result.detail);
  }

  if (!isFinished) {
    queue = result.result.map((suspect) => ({
      ...suspect,
      isSuspect: true,
      answer: suspect.label,
      content: { kind: start.kind, text: suspect.content, columns: columnsOf(suspect.columns) },
    }));
  }

  isFinished = true;
  preloadImages();
}

const columnsOf = (cells) => Object.entries(cells).map(([name, value]) => ({ name, value }));

async function fetchDisagreements() {
  const began = performance.now();
  const result = await requestJson(apiUrl("/disagreements?n=100"));
  const answered = answeredItems(began);

  const corrections = queue.filter((item) => item.isCorrection);
  const open = result.disagreements.filter((item) => !answered.has(item.item) && !skipped.has(item.item));
  queue = [...corrections, ...open];

  start.waiting = result.waiting;
  isFinished = !queue.length;
  drawCount();
  preloadImages();
  if (isFinished) fetchLater(5000);
}

function preloadImages() {
  for (const item of queue.slice(0, PRELOADED)) {
    if (item.content?.kind === "image") new Image().src = imageUrl(item.item);
  }
}

function showNext() {
  current = queue.shift() ?? null;
  draw();

  const canFetch = !isReviewing && !(isDeciding && isFinished);
  if (queue.length < LOW && canFetch) fetchItems();
}

// ---- Labels of items that may have several

// The text that stands for a set of labels everywhere; see join_labels in campaigns/records.py.
const NO_LABELS = "(none)";
const splitLabels = (label) => (label === NO_LABELS ? [] : label.split(";"));
const joinLabels = (names) => start.classes.map(({ name }) => name).filter((name) => names.has(name)).join(";") || NO_LABELS;

// What people read of an answer.
function showLabel(label) {
  if (!hasSeveral || !label) return label;
  return label === NO_LABELS ? "none of these" : label.replaceAll(";", ", ");
}

function choose(name) {
  if (!hasSeveral) return answer("label", name);
  if (!current) return;

  if (!chosen.delete(name)) chosen.add(name);
  finder.clear();
  drawChosen();
}

function confirmLabels() {
  if (current) answer("label", joinLabels(chosen));
}

function drawChosen() {
  // Suggested labels are outlined and never chosen beforehand: whoever sees a choice tends to keep it.
  const predicted = current?.pick?.predicted ?? current?.predicted;
  const suggested = new Set(predicted && hasSeveral ? splitLabels(predicted) : []);
  for (const button of buttons) {
    const { label } = button.dataset;
    button.setAttribute("aria-pressed", String(chosen.has(label)));
    button.classList.toggle("suggested", suggested.has(label));
    button.setAttribute("aria-description", suggested.has(label) ? "predicted" : "");
  }
  const confirm = byId("confirm");
  confirm.disabled = !current;
  byId("chosen").textContent = current ? showLabel(joinLabels(chosen)) : "";
}

// ---- Answers

function answer(kind, label) {
  if (!current || (isDeciding && kind === "unsure")) return;

  const item = current;
  const remark = comment.value.trim() || null;
  const isConfirmed = kind === "keep" || (item.isSuspect && kind === "label" && label === item.answer);

  // Outside of labelling, a skip records nothing.
  if (kind === "skip" && (item.isSuspect || item.isCorrection || isDeciding)) {
    skipped.add(item.item);
  } else if (isConfirmed) {
    if (!item.isSuspect) return;
    remember(item, `${item.answer} confirmed`);
    outbox.post("keep", { item: item.item, comment: remark });
  } else if (isDeciding) {
    remember(item, label ?? kind);
    outbox.post("decisions", { item: item.item, label: label ?? null, comment: remark });
  } else {
    // Stored with the answer, to measure whether suggestions influence people.
    const shown = visibleSuggestion();
    const suggestion = shown && { source: shown.source, label: shown.label };
    const copies = kind === "label" && byId("with-copies")?.checked ? copiesOf(item).length : 0;
    remember(item, label ?? kind, copies);
    const origin = isReviewing ? "seen" : "single";
    const body = { item: item.item, kind, label: label ?? null, comment: remark, suggestion, origin };
    outbox.post("answers", copies ? { ...body, copies: true } : body);
  }

  comment.value = "";
  closeComment();
  finder.clear();
  showNext();
}

// The suggestion that stands on the page; null for no suggestion, or a hidden one.
function visibleSuggestion() {
  if (!current?.suggestion || !suggestSwitch?.checked) return null;
  return current.isCorrection || current.isSuspect ? null : current.suggestion;
}

function acceptSuggestion() {
  const suggestion = visibleSuggestion();
  if (suggestion) answer("label", suggestion.label);
}

function remember(item, answer, copied = 0) {
  recent = recent.filter((entry) => entry.question.item !== item.item);
  recent.unshift({ question: { ...item, answer, copied, isCorrection: false }, answer, state: "saving" });
  recent.length = Math.min(recent.length, RECENT);
  drawRecent();
}

function undo() {
  const newest = recent.shift();
  if (!newest) return say("There is nothing to undo.");

  const { question } = newest;
  const path = isDeciding ? "decisions/undo" : "undo";
  // Without a number, the answer is still on its way: the outbox adds the number when it arrives.
  if (!outbox.withdraw(question.item)) outbox.post(path, { item: question.item, number: newest.number });

  if (current) queue.unshift(current);
  current = { ...question, answer: question.isSuspect ? question.label : null, undone: newest.answer };
  skipped.delete(current.item);
  draw();
  drawRecent();
}

function change(entry) {
  if (current && !current.isCorrection) queue.unshift(current);
  current = { ...entry.question, isCorrection: true, isSuspect: false, answer: entry.answer };
  draw();
  byId("stage").focus();
}

// ---- Drawing

function say(text) {
  const line = byId("mode");
  line.textContent = text;
  line.hidden = false;
}

function showAlarm(text, buttonText, action) {
  const alarm = byId("alarm");
  alarm.replaceChildren(text);
  if (action) alarm.append(element("button", { type: "button", text: buttonText, on: { click: action } }));
  alarm.hidden = false;
}

function drawSaved() {
  const saved = byId("saved");
  const { error, length } = outbox;

  if (error) {
    saved.className = "saved not";
    saved.textContent = `${length} NOT SAVED`;
  } else if (length) {
    saved.className = "saved";
    saved.textContent = `Saving ${length}…`;
  } else {
    saved.className = "saved all";
    saved.textContent = recent.length ? "All saved" : "";
  }
}

function drawCount() {
  byId("bar").value = labelled;

  if (isDeciding) {
    const unsent = outbox.entries.filter((entry) => entry.what === "decisions").length;
    byId("count").textContent = `${Math.max(0, start.waiting - unsent).toLocaleString()} to decide`;
  } else {
    byId("count").textContent = `${labelled.toLocaleString()} of ${start.items.toLocaleString()} labelled`;
  }
  // The end says it, too, and may be drawn before the last answer is known to be saved.
  if (!current && isFinished) byId("stage").replaceChildren(...drawEmptyStage());
}

function draw() {
  byId("mode").hidden = true;

  if (current) {
    byId("stage").replaceChildren(showItem(current));
    const remark = describeMode();
    if (remark) say(remark);
  } else {
    byId("stage").replaceChildren(...drawEmptyStage());
  }
  byId("stage").closest(".work").classList.toggle("finished", !current && (isFinished || isWaiting));

  for (const button of buttons) {
    button.classList.toggle("current", Boolean(current?.answer) && button.dataset.label === current.answer);
    button.disabled = !current;
  }
  if (hasSeveral) {
    chosen.clear();
    // Somebody's answer that is looked at again is changed from what it is.
    const known = start.classes.map(({ name }) => name);
    const before = current?.answer ? splitLabels(current.answer) : [];
    for (const name of before) if (known.includes(name)) chosen.add(name);
    drawChosen();
  }

  drawCopies();
  drawSuggestion();
  drawWhy();
}

// Near copies of an item that its answer may be given to, too: pairs of the id and the start of the text.
function copiesOf(item) {
  return item && !item.isSuspect ? Object.entries(item.copies ?? {}) : [];
}

function drawCopies() {
  const place = byId("copies");
  if (!place) return;

  const copies = copiesOf(current);
  place.hidden = !copies.length;
  byId("with-copies").checked = Boolean(current?.isCorrection && current.copied);
  byId("copies-offer").textContent = copies.length === 1
    ? "Answer 1 near copy, too"
    : `Answer ${copies.length} near copies, too`;

  const isImage = current?.content?.kind === "image";
  const lines = copies.slice(0, SHOWN_COPIES).map(([item, text]) => element("li", {}, isImage
    ? element("img", { src: imageUrl(item), alt: item })
    : element("span", { text: text || item })));
  if (copies.length > SHOWN_COPIES) lines.push(element("li", { class: "soft", text: `… and ${copies.length - SHOWN_COPIES} more` }));
  byId("copies-list").replaceChildren(...lines);
}

function drawSuggestion() {
  const place = byId("suggestion");
  if (!place) return;

  const suggestion = visibleSuggestion();
  place.replaceChildren();
  if (!suggestion) return;

  const button = element("button", {
    type: "button",
    class: "accept",
    "aria-keyshortcuts": place.dataset.key,
    on: { click: (event) => { releaseFocus(event); acceptSuggestion(); } },
  }, element("kbd", { text: place.dataset.key }), ` ${suggestion.label}`);
  place.append(
    element("span", { class: "soft", text: "Suggestion" }),
    button,
    element("span", { class: "soft", text: describeSource(suggestion) }));
}

// Where a suggestion comes from, and how far it can be trusted.
function describeSource({ source, probability, accuracy }) {
  const sure = probability === null ? "" : ` (${percent(probability)} sure)`;
  if (!accuracy) return `by ${source}${sure}, accuracy not measured yet`;

  const only = accuracy.share < 0.5 ? "only " : "";
  const items = accuracy.total === 1 ? "1 control item" : `${accuracy.total.toLocaleString()} control items`;
  return `by ${source}${sure}, right on ${only}${percent(accuracy.share)} of ${items}`;
}

function describeMode() {
  if (current.isCorrection) return `You answered ${showLabel(current.answer)}. Choose another answer, or press space to keep it.`;
  if (current.isSuspect) return `Labelled ${showLabel(current.answer)} (${percent(current.chance)} likely), predicted ${showLabel(current.predicted)}.`;
  if (current.undone) return `${showLabel(current.undone)} undone. ${isDeciding ? "Decide" : "Answer"} again.`;
  if (isDeciding && current.answers) return Object.entries(current.answers).map(([annotator, answer]) => `${annotator}: ${showLabel(answer)}`).join(" · ");
  return null;
}

function drawEmptyStage() {
  if (isWaiting) return [element("p", { class: "pages" }, element("button", { type: "button", class: "main", text: "Start labelling", on: { click: startLabelling } }))];

  const isDone = start.mode === "label" && isFinished && !heldByOthers;
  if (!isDone) return [element("p", { class: "soft", text: describeEmptyStage() })];

  const pages = [["Review", "review"], ["Export", "export"], ["Model", "answer"]];
  const links = pages
    .filter(([, permission]) => start.permissions.includes(permission))
    .map(([title]) => element("a", { class: "button", href: `/c/${start.slug}/${title.toLowerCase()}`, text: title }));
  return [
    element("p", { class: "words short", text: `Done: ${labelled.toLocaleString()} labelled` }),
    element("p", { class: "pages" }, ...links),
  ];
}

function startLabelling() {
  isWaiting = false;
  draw();
  byId("stage").focus();
  fetchItems();
}

function describeEmptyStage() {
  if (isDeciding) {
    if (!isFinished) return "Looking for disagreements…";
    if (skipped.size && start.waiting) return "You skipped the remaining items. Reload the page to see them again.";
    return "Nothing to decide.";
  }

  if (isReviewing) return isFinished ? "No label looks wrong." : "Looking for labels that may be wrong…";
  if (!isFinished) return "Choosing the next items…";
  return "Nothing is left for you at the moment. Other annotators have the remaining items. If they do not answer in time, you may get some of these items. An owner can also release them on the Team page.";
}

function drawWhy() {
  const why = byId("why");
  const isOpen = why.querySelector("details")?.open ?? false;
  why.replaceChildren();

  if (!current) why.append(element("p", { class: "soft", text: "–" }));
  else if (isDeciding) drawAnswers(why);
  else if (current.isSuspect) why.append(element("p", { text: describeSuspect() }));
  else if (current.isCorrection || !current.pick) why.append(element("p", { text: "You have answered this item before." }));
  else drawPick(why, isOpen);
}

function describeSuspect() {
  return `A model trained without this label gives it a probability of ${percent(current.chance)} and predicts ${showLabel(current.predicted)}.`;
}

function drawPick(why, isOpen) {
  const reason = blindReason();

  if (reason) {
    const hidden = "The model's prediction is hidden so that it does not influence you.";
    why.append(element("p", { text: reason }), element("p", { class: "soft", text: hidden }));
    return;
  }

  why.append(element("p", {}, ...describeReason()));
  drawProbabilities(why);
  drawNeighbours(why);
  const details = element("details", {}, element("summary", { text: "Details" }), element("p", { class: "soft", text: describePick() }));
  details.open = isOpen;
  why.append(details);
}

// Why an item is shown without the model's opinion; null if it is shown with it.
function blindReason() {
  const { pick } = current;
  if (pick.arm === "control") return "Control item: drawn at random to measure accuracy.";
  if (pick.arm === "holdout") return "Holdout item: drawn at random to measure accuracy, never used for training.";
  if (pick.arm === "check") return "Asked again, to see whether answers to many items at once hold.";
  if (pick.arm === "finish") return "Random item: drawn to find out which items the model may label.";
  if (pick.is_sample) return "Random item: this campaign draws all items at random, and each of them measures accuracy.";
  if (pick.is_counted && !pick.is_shared) return "Chosen to teach the model. Your answer also counts for the certificate.";
  if (pick.is_shared) return "Several annotators label this item, to measure how well they agree.";
  return null;
}

// Why a model would learn from this item, in one sentence.
function describeReason() {
  const { predicted, probability } = current.pick;
  const [first, second] = predictedShares();
  if (predicted === null) return ["Chosen to cover the data, when there was no model yet."];
  if (hasSeveral) return ["The model expects ", nameClass(showLabel(predicted)), ` (${percent(probability)} sure of all of it).`];
  if (first[1] >= SURE) return ["The model expects ", nameClass(first[0]), ". Your answer shows whether it is right."];
  if (second) return ["The model is unsure between ", nameClass(first[0]), " and ", nameClass(second[0]), "."];
  return ["The model is unsure about this item: ", nameClass(predicted), " has ", percent(probability), "."];
}

const nameClass = (name) => element("b", {}, ...breakable(name));

function describePick() {
  const { rank, predicted, scores } = current.pick;
  const chosen = `Chosen by ${start.strategy}, rank ${rank} in its batch.`;
  if (scores.covers > 0) {
    const unsure = predicted === null ? "" : " that the model is unsure of";
    return `${chosen} It covers ${scores.covers} items${unsure}.`;
  }
  if (scores.ldm === undefined) return chosen;
  return `${chosen} LDM ${scores.ldm.toPrecision(2)}: the smaller it is, the smaller a change to the model would change its prediction.`;
}

function drawAnswers(why) {
  if (!current.answers) {
    why.append(element("p", { text: "You have already decided this item." }));
    return;
  }

  const lines = Object.entries(current.answers).map(([annotator, answer]) => element("li", {},
    element("b", { text: showLabel(answer) }),
    element("span", { text: annotator })));
  const label = current.label
    ? `Until you decide, the label of this item is ${showLabel(current.label)} (confidence ${percent(current.confidence)}).`
    : "Until you decide, this item is left out.";

  why.append(element("ul", { class: "given" }, ...lines), element("p", { class: "soft", text: label }));
}

// Pairs of a class and its probability, the most likely first; one pair until the others have arrived.
function predictedShares() {
  const { predicted, probability } = current.pick;
  const shares = current.explanation?.probabilities ?? [];
  if (shares.length || predicted === null) return shares;
  return [[predicted, probability]];
}

function drawProbabilities(why) {
  const shares = predictedShares();
  if (!shares.length) return;

  const rows = element("div", { class: "odds", role: "group", "aria-label": "Predicted probabilities" });
  for (const [name, share] of shares.slice(0, 5)) {
    const bar = element("i");
    bar.style.width = `${100 * share}%`;
    rows.append(
      element("span", {}, ...breakable(showLabel(name))),
      element("div", { class: "track" }, bar),
      element("span", { class: "number", text: percent(share) }));
  }

  why.append(rows);
}

function drawNeighbours(why) {
  const neighbours = current.explanation?.neighbours ?? [];
  if (!neighbours.length) return;

  const isImage = current.content.kind === "image";
  const lines = neighbours.map((neighbour) => element("li", {},
    element("b", { text: showLabel(neighbour.label), title: showLabel(neighbour.label) }),
    isImage
      ? element("img", { src: imageUrl(neighbour.item), alt: neighbour.item })
      : element("span", { text: neighbour.content || neighbour.item })));

  why.append(
    element("p", { class: "soft", text: "Nearest labelled items:" }),
    element("ul", { class: isImage ? "near pictures" : "near" }, ...lines));
}

function drawRecent() {
  const lines = recent.map(makeRecentLine);
  if (!lines.length) lines.push(element("li", { class: "soft", text: "None yet." }));
  byId("last").replaceChildren(...lines);
}

function makeRecentLine(entry) {
  const { question, answer, state } = entry;
  const isSaved = state === "saved";

  const mark = element("span", {
    class: isSaved ? "state" : "state not",
    text: isSaved ? "✓" : "…",
    title: state,
    "aria-label": state,
    role: "img",
  });
  const content = question.content?.kind === "image"
    ? [element("img", { src: imageUrl(question.item), alt: question.item }), element("span", { class: "what", text: question.item })]
    : [element("span", { class: "what", text: question.content?.text ?? question.item })];
  const button = element("button", {
    type: "button",
    text: "Change",
    "aria-label": `Change ${question.item}`,
    on: { click: () => change(entry) },
  });

  const given = question.copied ? `${showLabel(answer)} × ${question.copied + 1}` : showLabel(answer);
  return element("li", {}, mark, element("b", { text: given, title: given }), ...content, button);
}

// ---- Keys and buttons

const actions = {
  skip: () => answer("skip"),
  unsure: () => answer("unsure"),
  flag: () => answer("flag"),
  keep: () => answer("keep"),
  confirm: confirmLabels,
  undo,
  help: () => byId("help").showModal(),
};


// Each button of an action has its key: the same ones as in the terminal.
const actionButtons = [...document.querySelectorAll("[data-do]")];
const actionByKey = new Map(actionButtons.map((button) => [button.dataset.key, actions[button.dataset.do]]));
if (suggestSwitch) {
  actionByKey.set(byId("suggestion").dataset.key, acceptSuggestion);
  suggestSwitch.checked = localStorage.getItem(HIDDEN_KEY) !== "1";
  suggestSwitch.addEventListener("change", () => {
    localStorage.setItem(HIDDEN_KEY, suggestSwitch.checked ? "0" : "1");
    suggestSwitch.blur();
    drawSuggestion();
  });
}

const withCopies = byId("with-copies");  // null unless new items are labelled
if (withCopies) {
  actionByKey.set(withCopies.dataset.key, () => { if (!byId("copies").hidden) withCopies.checked = !withCopies.checked; });
  withCopies.addEventListener("change", () => withCopies.blur());
}

const classByKey = new Map(start.classes.filter((entry) => entry.shortcut).map((entry) => [entry.shortcut, entry.name]));

function makeClassButton({ name, shortcut, description }) {
  const key = typesToFind ? null : shortcut;

  const button = element("button", {
    type: "button",
    class: "choice",
    "data-label": name,
    "aria-keyshortcuts": key,
    title: description || null,
    on: { click: (event) => { releaseFocus(event); choose(name); } },
  });

  if (key) button.append(element("kbd", { text: key }));
  button.append(...breakable(name));
  return button;
}

// After a click with the mouse, keys are for the page again. Someone who tabs to a button stays there.
function releaseFocus(event) {
  if (event.detail) event.currentTarget.blur();
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;

  const { target } = event;
  if (target === comment) {
    if (event.key === "Enter" || event.key === "Escape") {
      event.preventDefault();
      target.blur();
    }
    return;
  }

  const isInFinder = target === byId("find");
  if (isInFinder && (!typesToFind || !finder.isEmpty)) return;
  if (!isInFinder && target.closest("input, textarea, select")) return;
  if ((event.key === " " || event.key === "Enter") && target.closest("button, a, summary")) return;

  const action = actionFor(event);
  if (!action) return;

  event.preventDefault();
  if (!event.repeat) action();
}

function actionFor(event) {
  if (event.key === "Enter") return hasSeveral ? confirmLabels : openComment;
  if (typesToFind) return actionWhileFinding(event);

  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (classByKey.has(key)) return () => choose(classByKey.get(key));
  if (key === "/" && finder.isThere) return () => finder.focus();
  return actionByKey.get(key);
}

// Letters and digits go into the field. Capitals are actions, since case does not matter for finding.
function actionWhileFinding(event) {
  if (actionByKey.has(event.key)) return actionByKey.get(event.key);

  if (event.key.length === 1) finder.focus();  // the letter itself is typed into the field
  return null;
}

// ---- Comments, new classes, and other browsers

function openComment() {
  comment.hidden = false;
  byId("write").ariaExpanded = "true";
  comment.focus();
}

// What is written stays in sight until it goes with an answer.
function closeComment() {
  comment.hidden = !comment.value.trim();
  byId("write").ariaExpanded = String(!comment.hidden);
}

function askForClass() {
  adding.showModal();
  const field = adding.querySelector("input");
  if (!finder.isEmpty) field.value = finder.text;
  field.focus();
}

async function addClass(event) {
  event.preventDefault();
  const output = adding.querySelector("output");
  try {
    await requestJson(apiUrl("/classes"), { name: adding.querySelector("input").value });
    location.reload();  // with its key, which may be another one for the classes after it
  } catch (error) {
    output.className = "alarm";
    output.textContent = error.message;
  }
}

function followSharedName() {
  const line = byId("shared-name");
  if (!line) return;

  const key = `teeter that was me: ${start.campaign} ${start.annotator}`;
  line.hidden = false;
  try { line.hidden = localStorage.getItem(key) !== null; } catch { /* it is shown */ }
  line.querySelector("button").addEventListener("click", () => {
    line.hidden = true;
    try { localStorage.setItem(key, "yes"); } catch { /* until the page is loaded again */ }
  });
}

// ---- Start

function listUnsent() {
  for (const entry of outbox.entries) {
    const isListed = recent.some((given) => given.question.item === entry.body.item);
    if (isUndo(entry) || isListed) continue;

    const answer = entry.body.label ?? entry.body.kind ?? (entry.what === "decisions" ? "flag" : "confirmed");
    recent.unshift({ question: { item: entry.body.item }, answer, state: "saving" });
  }
}

async function poll() {
  if (document.hidden || outbox.error) return;

  const campaign = await requestJson(apiUrl("")).catch(() => null);
  if (campaign) {
    byId("news").textContent = campaign.news;
    labelled = campaign.labelled;
    drawCount();
  }

  if (isDeciding) fetchItems();
}

// Rows of equal length: six classes are two rows of three, not one of five and one of one.
function balancedColumns(count) {
  const rows = Math.ceil(count / MAX_COLUMNS);
  return Math.ceil(count / rows);
}

followSharedName();
comment.addEventListener("blur", closeComment);
byId("write").addEventListener("click", openComment);
byId("add")?.addEventListener("click", askForClass);
adding?.querySelector("form.fields").addEventListener("submit", addClass);
byId("choices").append(...buttons);
byId("choices").style.setProperty("--columns", balancedColumns(buttons.length));
document.addEventListener("keydown", onKey);
addEventListener("beforeunload", (event) => { if (outbox.length) event.preventDefault(); });

for (const button of actionButtons) {
  button.addEventListener("click", (event) => { releaseFocus(event); actions[button.dataset.do](); });
}

listUnsent();
queue = queue.filter((item) => !outbox.hasItem(item.item));
drawRecent();
drawSaved();
drawCount();
showNext();
preloadImages();
outbox.send();
fetchItems();
setInterval(poll, POLL);
