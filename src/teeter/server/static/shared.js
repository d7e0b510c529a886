// What the pages share: elements built from plain text (never from HTML), requests to the server, and how an item looks.

import { renderMarkdown } from "./markdown.js";

/** What the server wrote into the page: the campaign, the annotator and the first items. */
export const start = JSON.parse(document.getElementById("start")?.textContent ?? "{}");

export const byId = (id) => document.getElementById(id);

let csrfToken = document.querySelector('meta[name="csrf"]').content;

/** The annotator this browser answers for now, if that is no longer the one the page was loaded for. */
let otherAnnotator = null;

/** Make an element. `attributes` may have `text` (its text) and `on` (listeners by event name). */
export function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);

  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") node.textContent = value;
    else if (name === "on") for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    else if (value !== null && value !== undefined) node.setAttribute(name, value);
  }

  node.append(...children);
  return node;
}

export const apiUrl = (path) => `/api/v1/campaigns/${start.slug}${path}`;
export const imageUrl = (item) => apiUrl(`/image?id=${encodeURIComponent(item)}`);
export const itemUrl = (item) => `/c/${start.slug}/item?id=${encodeURIComponent(item)}`;

/** An answer that is not the expected one. `status` is 0 if the server did not answer. */
export class RequestError extends Error {
  constructor(message, status, { isOtherAnnotator = false } = {}) {
    super(message);
    this.status = status;
    this.isOtherAnnotator = isOtherAnnotator;
  }
}

/** Send a request: POST with a JSON body if there is one, otherwise GET. Returns the response or throws a RequestError. */
export async function request(url, body, headers = {}) {
  const options = body === undefined ? { headers } : {
    method: "POST",
    headers: { "content-type": "application/json", "x-csrf-token": csrfToken },
    body: JSON.stringify(body),
  };

  let response;
  try {
    response = await fetch(url, { ...options, signal: AbortSignal.timeout(20000) });
  } catch {
    throw new RequestError("The server is not responding.", 0);
  }

  if (response.status === 403) await refreshToken();

  if (otherAnnotator) {
    const message = `You are now labelling as ${otherAnnotator} in this browser. Reload this page.`;
    throw new RequestError(message, 403, { isOtherAnnotator: true });
  }

  if (!response.ok) {
    const content = await response.json().catch(() => ({}));
    throw new RequestError(content.detail ?? `The server responded with status ${response.status}.`, response.status);
  }

  return response;
}

export const requestJson = async (url, body) => (await request(url, body)).json();

// A restarted server has new CSRF tokens. A session of another annotator is not used: the answers here are not theirs.
async function refreshToken() {
  const response = await fetch("/api/v1/session").catch(() => null);
  if (!response?.ok) return;

  const session = await response.json();
  const isOther = start.annotator !== undefined && session.annotator !== start.annotator;

  if (isOther) otherAnnotator = session.annotator;
  else csrfToken = session.csrf;
}

/** Return an element that shows an item, with its columns beside it. */
export function showItem(item) {
  const columns = item.content?.columns ?? [];
  if (!columns.length) return showContent(item);

  const cells = columns.flatMap(({ name, value }) => [
    element("dt", { text: name }),
    element("dd", {}, ...renderMarkdown(value)),
  ]);
  return element("div", { class: "beside" }, showContent(item), element("dl", { class: "columns" }, ...cells));
}

function showContent(item) {
  // An answer that an earlier page could not send has no content.
  const content = item.content ?? {};
  if (content.kind === "image") return element("img", { src: imageUrl(item.item), alt: `Image ${item.item}` });
  if (content.kind === "features") return showFeatures(item);

  const text = content.text ?? item.item;
  const isShort = text.length < 140 && !text.includes("\n");
  const words = element("div", { class: isShort ? "words short" : "words", text });

  if (content.characters) {
    words.append(element("p", { class: "soft", text: `… shortened: the whole text has ${content.characters.toLocaleString()} characters` }));
  }

  return words;
}

// Features as bars around zero, and the first of them as numbers for people who do not see the bars.
function showFeatures(item) {
  const values = item.content.features ?? [];
  const [width, height] = [800, 200];
  const label = `Features of ${item.item}: ${values.slice(0, 20).join(", ")}`;
  const canvas = element("canvas", { role: "img", "aria-label": label });

  const pixelRatio = window.devicePixelRatio || 1;
  canvas.width = width * pixelRatio;
  canvas.height = height * pixelRatio;

  const context = canvas.getContext("2d");
  context.scale(pixelRatio, pixelRatio);
  context.fillStyle = getComputedStyle(document.body).getPropertyValue("--accent");

  const largest = Math.max(...values.map(Math.abs), 1e-9);
  const step = width / Math.max(values.length, 1);
  const middle = height / 2;

  values.forEach((value, index) => {
    const length = 95 * Math.abs(value) / largest;
    const top = value > 0 ? middle - length : middle;
    context.fillRect(index * step, top, Math.max(step - 1, 1), length);
  });

  const first = values.slice(0, 12).map((value) => value.toFixed(3)).join("  ");
  const more = values.length > 12 ? "  …" : "";
  return element("div", {}, canvas, element("p", { class: "soft", text: `${item.item}:  ${first}${more}` }));
}

/** Return a name as nodes that may break into lines after an underscore, slash, dot or hyphen. */
export const breakable = (name) => name.match(/[^_/.-]+[_/.-]*|[_/.-]+/g).flatMap((part) => [part, element("wbr")]);

/** Format a share as a percentage. */
export function percent(share) {
  if (share < 0.001) return "under 0.1%";
  return `${(100 * share).toFixed(share < 0.1 ? 1 : 0)}%`;
}

const PREDICTIONS_HIDDEN = "teeter hides predictions";

/** Let a checkbox hide all predictions, as this browser remembers. Returns a function that says whether they are hidden. */
export function followHiding(checkbox, onChange) {
  const follow = () => {
    document.body.classList.toggle("guessing", !checkbox.checked);
    setTimeout(onChange);  // when the caller has the function that is returned
  };
  try { checkbox.checked = localStorage.getItem(PREDICTIONS_HIDDEN) === "yes"; } catch { /* they are shown */ }
  follow();

  checkbox.addEventListener("change", (event) => {
    event.stopPropagation();  // it is no part of a query
    try { localStorage.setItem(PREDICTIONS_HIDDEN, checkbox.checked ? "yes" : "no"); } catch { /* until the page is closed */ }
    follow();
  });
  return () => checkbox.checked;
}
