// What pages share: elements from plain text (never from HTML), requests with the session's token, and an item as it looks.
"use strict";

const teeter = {
  csrf: document.querySelector('meta[name="csrf"]').content,
  start: JSON.parse(document.getElementById("start")?.textContent ?? "{}"),

  make(tag, given = {}, ...inside) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(given)) {
      if (name === "text") made.textContent = value;
      else if (name === "on") for (const [what, act] of Object.entries(value)) made.addEventListener(what, act);
      else if (value !== null && value !== undefined) made.setAttribute(name, value);
    }
    made.append(...inside);
    return made;
  },

  address(path) { return `/api/v1/campaigns/${teeter.start.slug}${path}`; },

  image(item) { return teeter.address(`/image?id=${encodeURIComponent(item)}`); },

  page(item) { return `/c/${teeter.start.slug}/item?id=${encodeURIComponent(item)}`; },

  // Answers with what came back, or throws an error with `status` (0 if the server did not answer).
  async ask(path, body) {
    const how = body === undefined ? {} : {
      method: "POST",
      headers: { "content-type": "application/json", "x-csrf-token": teeter.csrf },
      body: JSON.stringify(body),
    };
    let answer;
    try {
      answer = await fetch(path, { ...how, signal: AbortSignal.timeout(20000) });
    } catch {
      throw Object.assign(new Error("The server does not answer."), { status: 0 });
    }
    if (answer.status === 403) await teeter.refresh();
    if (teeter.other) throw Object.assign(new Error(`You are ${teeter.other} in another tab: load this page again.`), { status: 403, other: true });
    if (!answer.ok) {
      const told = await answer.json().catch(() => ({}));
      throw Object.assign(new Error(told.detail ?? `The server answers ${answer.status}.`), { status: answer.status });
    }
    return answer;
  },

  other: null,  // who answers from this browser now, if it is not whom the page was loaded for

  // The server may have been started anew: ask for the token that goes with changes. One of another name is not taken,
  // for the answers here are not theirs.
  async refresh() {
    const answer = await fetch("/api/v1/session").catch(() => null);
    if (!answer?.ok) return;
    const told = await answer.json();
    if (teeter.start.annotator !== undefined && told.annotator !== teeter.start.annotator) teeter.other = told.annotator;
    else teeter.csrf = told.csrf;
  },

  shown(one) {
    if (one.kind === "image") return teeter.make("img", { src: teeter.image(one.item), alt: `Image ${one.item}` });
    if (one.kind === "features") return teeter.bars(one);
    const text = one.text ?? one.item;
    const short = text.length < 140 && !text.includes("\n") ? " short" : "";
    const words = teeter.make("div", { class: `words${short}`, text });
    if (one.characters) words.append(teeter.make("p", { class: "soft", text: `… ${one.characters.toLocaleString()} characters in all` }));
    return words;
  },

  // Features as bars around zero, and as numbers for those who do not see them.
  bars(one) {
    const values = one.features ?? [];
    const canvas = teeter.make("canvas", { role: "img", "aria-label": `Features of ${one.item}: ${values.slice(0, 20).join(", ")}` });
    const scale = window.devicePixelRatio || 1;
    canvas.width = 800 * scale; canvas.height = 200 * scale;
    const draw = canvas.getContext("2d");
    draw.scale(scale, scale);
    const most = Math.max(...values.map(Math.abs), 1e-9), wide = 800 / Math.max(values.length, 1);
    draw.fillStyle = getComputedStyle(document.body).getPropertyValue("--accent");
    values.forEach((value, k) => draw.fillRect(k * wide, value > 0 ? 100 - 95 * value / most : 100, Math.max(wide - 1, 1), 95 * Math.abs(value) / most));
    const first = values.slice(0, 12).map((value) => value.toFixed(3)).join("  ");
    return teeter.make("div", {}, canvas, teeter.make("p", { class: "soft", text: `${one.item}:  ${first}${values.length > 12 ? "  …" : ""}` }));
  },
};
