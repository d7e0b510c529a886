// The page to label on. Questions are at hand before they are needed; an answer shows the next one at once and is sent
// behind it. Nothing is called saved before the server has said that it is on disk; what could not be sent is kept.
"use strict";

(() => {
  const { start, make } = teeter;
  const at = (id) => document.getElementById(id);
  const suspecting = start.mode === "suspects", deciding = start.mode === "decide";
  const shelf = `teeter outbox ${start.campaign} ${JSON.stringify(start.annotator)} `;
  const byKey = new Map(start.classes.filter((one) => one.key).map((one) => [one.key, one.name]));
  let queue = start.questions, posted = 0, current = null, finished = false, filling = false, poll = null;
  let outbox = adopted(), sending = false, failed = null, wait = 500;
  let last = start.last.map((one) => ({ question: one, said: one.said, state: "saved" }));
  let labelled = start.labelled;
  const stored = new Map();  // items, and when their answers were saved
  const later = new Set();  // disagreements that were put off
  const takesBack = (entry) => entry.what === "undo" || entry.what === "decisions/undo";

  // ---- what is to be sent: one after the other, so that taking back follows what it takes back

  // Each entry has a key of its own, so that two tabs do not write over each other's. Both may send the same entry:
  // the same answer twice is stored once. A browser that keeps nothing sends all the same.

  function adopted() {
    try {
      const found = Object.keys(localStorage).filter((key) => key.startsWith(shelf)).sort();
      return found.map((key) => ({ ...JSON.parse(localStorage.getItem(key)), key, kept: true, adopted: true }));
    } catch { return []; }
  }

  // Whether another tab has sent an entry, and removed it.
  function isGone(entry) {
    try { return entry.kept === true && localStorage.getItem(entry.key) === null; } catch { return false; }
  }

  const alone = (act) => navigator.locks ? navigator.locks.request(shelf, act) : act();

  function keep(entry) {
    const random = [...crypto.getRandomValues(new Uint32Array(2))].map((part) => part.toString(36)).join("");
    entry.key = `${shelf}${String(Date.now()).padStart(15, "0")} ${String(posted++).padStart(6, "0")} ${random}`;
    try {
      localStorage.setItem(entry.key, JSON.stringify({ what: entry.what, body: entry.body }));
      entry.kept = true;
    } catch { /* it is sent from here */ }
  }

  function forget(entry) {
    try { localStorage.removeItem(entry.key); } catch { /* it was never kept */ }
  }

  function showSaved() {
    const saved = at("saved");
    saved.className = `saved ${failed ? "not" : outbox.length ? "" : "all"}`;
    saved.textContent = failed ? `${outbox.length} NOT SAVED` : outbox.length ? `Saving ${outbox.length}…` : last.length ? "All saved" : "";
  }

  function post(what, body) {
    const entry = { what, body };
    keep(entry);
    outbox.push(entry);
    showSaved();
    send();
  }

  async function send() {
    if (sending || !outbox.length) return;
    sending = true;
    const first = outbox[0];
    try {
      const told = await alone(async () => {
        if (isGone(first) && (first.adopted || takesBack(first))) return { labelled, undone: true };
        const done = await (await teeter.ask(teeter.address(`/${first.what}`), first.body)).json();
        forget(first);
        return done;
      });
      outbox.shift();
      failed = null; wait = 500;
      at("alarm").hidden = true;
      if (!takesBack(first)) markSaved(first.body.item, told);
      else if (deciding && told.undone) fill();
      else if (!told.undone) alarm("It was not taken back: you answered elsewhere since, or took it back there.", () => location.reload(), "Load the page again");
    } catch (error) {
      failed = error;
      const refused = error.status >= 400 && error.status < 500 && error.status !== 403 && error.status !== 401 && error.status !== 429;
      const more = outbox.length > 1 ? ` and ${outbox.length - 1} more` : "";
      alarm(`Not saved: the answer about ${first.body.item ?? "the last item"}${more}. ${error.message}` +
            (refused ? "" : " It is kept here and sent again."), refused ? () => drop(first) : null);
      if (error.other) alarm(`${error.message} ${outbox.length} of ${start.annotator}'s answers wait here to be sent.`, null);
      if (refused || error.other) { sending = error.other; showSaved(); return; }
      setTimeout(() => { sending = false; send(); }, wait);
      wait = Math.min(wait * 2, 8000);
      showSaved();
      return;
    }
    sending = false;
    showSaved();
    send();
  }

  function drop(entry) {
    outbox = outbox.filter((one) => one !== entry);
    forget(entry);
    last = last.filter((one) => one.question.item !== entry.body.item || one.state === "saved");
    failed = null;
    at("alarm").hidden = true;
    showSaved(); drawLast(); send();
  }

  function alarm(text, act, called = "Put it aside") {
    const place = at("alarm");
    place.replaceChildren(text);
    if (act) place.append(make("button", { type: "button", text: called, on: { click: act } }));
    place.hidden = false;
  }

  function markSaved(item, told) {
    stored.set(item, performance.now());
    const one = last.find((entry) => entry.question.item === item && entry.state !== "saved");
    if (one) one.state = "saved";
    labelled = told.labelled;
    drawCount(); drawLast();
    if (queue.length < 12 || deciding) fill();
  }

  // ---- what is asked

  async function fill() {
    if (filling || finished && !suspecting && !deciding) return;
    filling = true;
    try {
      if (suspecting) await fillSuspects();
      else if (deciding) await fillDisagreements();
      else await fillQuestions();
    } catch (error) {
      if (!queue.length && !current) at("stage").replaceChildren(make("p", { class: "soft", text: `${error.message} Trying again…` }));
      again(2000);
    }
    filling = false;
    if (!current) next();
  }

  async function fillQuestions() {
    const began = performance.now();
    const told = await (await teeter.ask(teeter.address("/questions?n=40"))).json();
    const gone = new Set(outbox.map((one) => one.body.item));
    for (const [item, when] of stored) if (when >= began) gone.add(item);  // saved while this was on its way
    if (current) gone.add(current.item);
    const fresh = told.questions.filter((one) => !gone.has(one.item));
    const known = new Map(fresh.map((one) => [one.item, one]));
    const kept = queue.filter((one) => one.correcting || known.has(one.item) && !gone.has(one.item)).map((one) => one.correcting ? one : known.get(one.item));
    const there = new Set(kept.map((one) => one.item));
    queue = [...kept, ...fresh.filter((one) => !there.has(one.item))];
    finished = told.finished && !queue.length;
    at("news").textContent = told.news;
    if (current && !current.probabilities) {
      const better = told.questions.find((one) => one.item === current.item);
      if (better) { Object.assign(current, better); drawWhy(); }
    }
    if (!queue.length && !finished) again(500);
    preload();
  }

  async function fillSuspects() {
    const told = await (await teeter.ask(teeter.address("/suspects"))).json();
    if (told.state === "waiting") return again(500);
    if (told.state === "failed") { finished = true; throw new Error(told.detail); }
    if (!finished) queue = told.suspects.map((one) => ({ ...one, suspect: true, said: one.label, kind: start.kind, text: one.content }));
    finished = true;
    preload();
  }

  async function fillDisagreements() {
    const began = performance.now();
    const told = await (await teeter.ask(teeter.address("/disagreements?n=100"))).json();
    const gone = new Set([...later, ...outbox.map((one) => one.body.item)]);
    for (const [item, when] of stored) if (when >= began) gone.add(item);
    if (current) gone.add(current.item);
    queue = [...queue.filter((one) => one.correcting), ...told.disagreements.filter((one) => !gone.has(one.item))];
    start.waiting = told.waiting;
    finished = !queue.length;
    drawCount(); preload();
    if (finished) again(5000);
  }

  function again(pause) { clearTimeout(poll); poll = setTimeout(fill, pause); }

  function preload() {
    for (const one of queue.slice(0, 6)) if (one.kind === "image") new Image().src = teeter.image(one.item);
  }

  function next() {
    current = queue.shift() ?? null;
    draw();
    if (queue.length < 12 && !suspecting && !(deciding && finished)) fill();
  }

  // ---- answers

  function answer(kind, label) {
    if (!current) return;
    const one = current, comment = at("comment").value.trim() || null;
    if (deciding && kind === "unsure") return;
    if (kind === "skip" && (one.suspect || one.correcting || deciding)) { later.add(one.item); clear(); return next(); }
    if (kind === "keep" || (one.suspect && kind === "label" && label === one.said)) {
      if (!one.suspect) return;
      remember(one, `${one.said} kept`);
      post("keep", { item: one.item, comment });
    } else if (deciding) {
      remember(one, label ?? kind);
      post("decisions", { item: one.item, label: label ?? null, comment });
    } else {
      remember(one, label ?? kind);
      post("answers", { item: one.item, kind, label: label ?? null, comment });
    }
    clear();
    next();
  }

  function clear() { at("comment").value = ""; }

  function remember(one, said) {
    last = last.filter((entry) => entry.question.item !== one.item);
    last.unshift({ question: { ...one, said, correcting: false }, said, state: "saving" });
    last.length = Math.min(last.length, 10);
    drawLast();
  }

  function undo() {
    const newest = last.shift();
    if (!newest) return say("There is nothing to take back.");
    const waiting = outbox.at(-1);
    if (waiting && waiting.body.item === newest.question.item && !isGone(waiting) && !(sending && outbox.length === 1)) { forget(outbox.pop()); showSaved(); send(); }
    else post(deciding ? "decisions/undo" : "undo", { item: newest.question.item });
    if (current) queue.unshift(current);
    current = { ...newest.question, said: newest.question.suspect ? newest.question.label : undefined, back: newest.said };
    later.delete(current.item);
    say(`${newest.said} taken back.`);
    draw(); drawLast();
  }

  function correct(entry) {
    if (current && !current.correcting) queue.unshift(current);
    current = { ...entry.question, correcting: true, suspect: false, said: entry.said };
    draw();
    at("stage").focus();
  }

  function say(text) {
    const place = at("mode");
    place.textContent = text;
    place.hidden = false;
  }

  // ---- drawing

  function draw() {
    const stage = at("stage");
    const mode = at("mode");
    mode.hidden = true;
    if (!current && deciding) return nothingToDecide(stage);
    if (!current) {
      const text = finished ? (suspecting ? (last.length ? "No label is suspected." : "No label is suspected: there are few yet.") : "Nothing is left to label.") :
        suspecting ? "Looking for labels that may be wrong…" : "The next questions are being picked…";
      stage.replaceChildren(make("p", { class: "soft", text }));
    } else {
      stage.replaceChildren(teeter.shown(current));
      if (current.correcting) say(`Correcting: you said ${current.said}. Space leaves it.`);
      else if (current.suspect) say(`Labelled ${current.said} (${percent(current.chance)} likely), looks like ${current.predicted}.`);
      else if (current.back) say(`${current.back} taken back: ${deciding ? "decide" : "answer"} again.`);
      else if (deciding && current.answers) say(current.answers.map((one) => `${one.annotator}: ${one.said}`).join(" · "));
    }
    for (const button of at("choices").children) {
      button.classList.toggle("said", Boolean(current?.said) && button.dataset.label === current.said);
      button.disabled = !current;
    }
    drawWhy();
  }

  function nothingToDecide(stage) {
    const text = !finished ? "Looking for disagreements…" : later.size && start.waiting ? "The others were put off: load the page again to decide them." : "There is nothing to decide: people agree on what several have labelled.";
    stage.replaceChildren(make("p", { class: "soft", text }));
    for (const button of at("choices").children) button.disabled = true;
    drawWhy();
  }

  const percent = (share) => share < 0.001 ? "under 0.1%" : `${(100 * share).toFixed(share < 0.1 ? 1 : 0)}%`;

  function drawWhy() {
    const place = at("why");
    place.replaceChildren();
    if (!current) return place.append(make("p", { class: "soft", text: "–" }));
    if (deciding) return drawSaid(place);
    if (current.correcting) return place.append(make("p", { text: "You answered it before." }));
    if (!current.suspect && current.rank === undefined) return place.append(make("p", { text: "You answered it before." }));
    if (current.suspect) {
      return place.append(make("p", { text: `A model that did not learn from this label finds it ${percent(current.chance)} likely, and takes the item for ${current.predicted}.` }));
    }
    const blind = current.arm === "control" ? "Random control: drawn at random, to measure the model with."
      : current.arm === "audit" ? "Audit: drawn at random and kept apart, to measure with."
        : current.shared ? "Several people answer this one, to see whether they agree." : null;
    if (blind) {
      return place.append(make("p", { text: blind }),
        make("p", { class: "soft", text: "What the model thinks is not shown, so that it does not lead you." }));
    }
    const ldm = current.ldm === undefined ? "" : ` Its LDM is ${Number(current.ldm).toPrecision(2)}: the label flips under a small change of the model.`;
    place.append(make("p", { text: current.predicted === undefined ? `Picked to cover the pool, rank ${current.rank}.` : `Picked by ${start.strategy}, rank ${current.rank} of its batch.${ldm}` }));
    drawOdds(place);
    if (current.neighbours?.length) {
      place.append(make("p", { class: "soft", text: "Nearest labelled items:" }));
      place.append(make("ul", { class: current.kind === "image" ? "near pictures" : "near" }, ...current.neighbours.map((one) => make("li", {}, make("b", { text: one.label }),
        current.kind === "image" ? make("img", { src: teeter.image(one.item), alt: one.item }) : make("span", { text: one.content || one.item })))));
    }
  }

  function drawSaid(place) {
    if (!current.answers) return place.append(make("p", { text: "You decided it before." }));
    place.append(make("ul", { class: "sayings" }, ...current.answers.map((one) => make("li", {}, make("b", { text: one.said }), make("span", { text: one.annotator })))));
    place.append(make("p", { class: "soft", text: current.counts_as ? `Until it is decided, it counts as ${current.counts_as} (${percent(current.confidence)}).` : "Until it is decided, it is left out." }));
  }

  function drawOdds(place) {
    const odds = current.probabilities?.length ? current.probabilities : current.predicted ? [[current.predicted, current.probability]] : [];
    if (!odds.length) return;
    const rows = make("div", { class: "odds", role: "group", "aria-label": "What the model thinks" });
    for (const [name, share] of odds.slice(0, 5)) {
      const filled = make("i");
      filled.style.width = `${100 * share}%`;
      rows.append(make("span", { text: name }), make("div", { class: "track" }, filled), make("span", { class: "number", text: percent(share) }));
    }
    place.append(rows);
  }

  function drawLast() {
    at("last").replaceChildren(...(last.length ? last.map((entry) => {
      const { question, said, state } = entry;
      const what = question.kind === "image" ? make("img", { src: teeter.image(question.item), alt: question.item }) :
        make("span", { class: "what", text: question.text ?? question.item });
      return make("li", {}, make("span", { class: `state${state === "saved" ? "" : " not"}`, text: state === "saved" ? "✓" : "…", title: state, "aria-label": state, role: "img" }),
        make("b", { text: said }), what, question.kind === "image" ? make("span", { class: "what", text: question.item }) : "",
        make("button", { type: "button", text: "Correct", "aria-label": `Correct ${question.item}`, on: { click: () => correct(entry) } }));
    }) : [make("li", { class: "soft", text: "None yet." })]));
  }

  function drawCount() {
    at("bar").value = labelled;
    const unsent = outbox.filter((one) => one.what === "decisions").length;
    if (deciding) at("count").textContent = `${Math.max(0, start.waiting - unsent).toLocaleString()} to decide`;
    else at("count").textContent = `${labelled.toLocaleString()} of ${start.items.toLocaleString()} labelled`;
  }

  // ---- keys and buttons

  const acts = {
    skip: () => answer("skip"), unsure: () => answer("unsure"), flag: () => answer("flag"), keep: () => answer("keep"), undo,
    help: () => at("help").showModal(),
  };
  const keys = { " ": acts.skip, u: acts.unsure, f: acts.flag, Backspace: undo, "?": acts.help, "=": acts.keep };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || at("help").open) return;
    const target = event.target;
    if (target === at("comment")) {
      if (event.key === "Enter" || event.key === "Escape") { event.preventDefault(); target.blur(); }
      return;
    }
    if (target.closest("input, textarea, select")) return;
    if ((event.key === " " || event.key === "Enter") && target.closest("button, a, summary")) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (event.key === "Enter") { event.preventDefault(); at("comment").focus(); return; }
    const act = byKey.has(key) ? () => answer("label", byKey.get(key)) : keys[key];
    if (!act) return;
    event.preventDefault();
    if (!event.repeat) act();
  });

  for (const { name, key } of start.classes) {
    at("choices").append(make("button", {
      type: "button", class: "choice", "data-label": name, "aria-keyshortcuts": key,
      on: { click: (event) => { if (event.detail) event.currentTarget.blur(); answer("label", name); } },
    }, ...(key ? [make("kbd", { text: key })] : []), name));
  }
  for (const button of document.querySelectorAll("[data-do]")) {
    if (button.classList.contains("only-suspects")) button.hidden = !suspecting;
    button.addEventListener("click", (event) => { if (event.detail) button.blur(); acts[button.dataset.do](); });
  }
  addEventListener("beforeunload", (event) => { if (outbox.length) event.preventDefault(); });

  // What was not sent before the page was closed comes first.
  for (const entry of outbox) {
    if (!takesBack(entry) && !last.some((one) => one.question.item === entry.body.item)) {
      last.unshift({ question: { item: entry.body.item }, said: entry.body.label ?? entry.body.kind ?? (entry.what === "decisions" ? "flag" : "kept"), state: "saving" });
    }
  }
  queue = queue.filter((one) => !outbox.some((entry) => entry.body.item === one.item));
  drawLast(); showSaved(); drawCount();
  next(); preload(); send(); fill();
  setInterval(async () => {
    if (document.hidden || failed) return;
    const told = await teeter.ask(teeter.address("")).then((answer) => answer.json()).catch(() => null);
    if (told) { at("news").textContent = told.news; labelled = told.labelled; drawCount(); }
    if (deciding) fill();
  }, 3000);
})();
