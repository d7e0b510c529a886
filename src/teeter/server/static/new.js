// The form for a new campaign: show what is in its file, send it, and ask for its state until the campaign is there.

import { byId, element, requestJson } from "./shared.js";

const form = byId("new");
const status = byId("status");
const csrfToken = document.querySelector('meta[name="csrf"]').content;

/** The upload whose columns are shown, or null. */
let upload = null;
/** Of several files and choices, one after the other, only the last one is shown. */
let newestRequest = 0;

// Not by its value, which a column may have as its name.
const isTemplate = () => form.elements.text.selectedOptions[0]?.dataset.template !== undefined;

// A name with a comma stands in quotes.
const quoteName = (name) => (/[,"]/.test(name) || name !== name.trim() ? `"${name.replaceAll('"', '""')}"` : name);

function sayReading(text, isError = false) {
  const output = byId("reading");
  output.hidden = !text;
  output.className = isError ? "alarm" : "soft";
  output.textContent = text;
}

function fillSelect(name, values, chosen, empty) {
  const options = values.map((value) => element("option", { value, text: value }));
  if (empty !== undefined) options.unshift(element("option", { value: "", text: empty }));
  form.elements[name].replaceChildren(...options);
  form.elements[name].value = chosen ?? (empty === undefined ? values[0] ?? "" : "");
}

function showClasses({ classes, proposed }) {
  const labelled = classes.reduce((sum, [, count]) => sum + count, 0);
  byId("counts").textContent = classes.length
    ? `In ${proposed.labels}, ${labelled.toLocaleString("en")} rows have a label: `
      + classes.map(([name, count]) => `${name} (${count.toLocaleString("en")})`).join(", ")
    : "";
  if (classes.length) form.elements.classes.value = classes.map(([name]) => quoteName(name)).join(", ");
}

// The classes of an audit are the labels that it audits, unless others are named.
function showAudit() {
  const isAudit = Boolean(form.elements.judges.value);
  byId("audit").hidden = !isAudit;
  form.elements.labels.parentElement.hidden = isAudit;
  form.elements.classes.required = !isAudit;
  if (isAudit) {
    form.elements.labels.value = "";
    form.elements.classes.value = "";
    byId("counts").textContent = `The labels in ${form.elements.judges.value}, unless you name others.`;
  } else byId("counts").textContent = "";
}

function showSource(preview) {
  const { columns, rows, proposed, sheets, links, notes } = preview;
  sayReading(notes.join(" "));
  byId("source").hidden = !columns.length;

  byId("sheets").hidden = sheets.length < 2;
  const isOtherFile = form.elements.sheet.options.length !== sheets.length;
  if (isOtherFile) fillSelect("sheet", sheets, sheets[0]);

  const shown = columns.slice(0, rows[0]?.length ?? 0);
  const more = columns.length > shown.length ? `, and the first ${shown.length} of ${columns.length} columns` : "";
  byId("first-rows").textContent = `The first rows${more}`;
  const table = form.querySelector("table.preview");
  table.tHead.replaceChildren(element("tr", {}, ...shown.map((name) => element("th", { scope: "col", text: name }))));
  table.tBodies[0].replaceChildren(
    ...rows.map((cells) => element("tr", {}, ...cells.map((text) => element("td", {}, element("div", { text }))))),
  );

  fillSelect("text", columns, proposed.text);
  form.elements.text.append(element("option", { value: "", text: "several columns…", "data-template": "" }));
  byId("template").hidden = true;
  byId("template").querySelector("input").value = columns.slice(0, 2).map((name) => `{${name}}`).join("\\n\\n");
  byId("links").hidden = !links.length;
  fillSelect("image", links, proposed.image, "none");
  // A column called id is used in any case.
  fillSelect("id_column", columns, proposed.id, proposed.id ? undefined : "none: by the texts");
  fillSelect("labels", columns, proposed.labels, "none");
  fillSelect("judges", columns, null, "none: label the items");
  fillSelect("confidences", columns, null, "none");
  showAudit();
  byId("shown").replaceChildren(
    byId("shown").firstElementChild,
    ...columns.map((name) => element("label", { class: "check" }, element("input", { type: "checkbox", value: name }), ` ${name}`)),
  );
  showClasses(preview);
}

// Returns what the server has read, or null if it cannot or something else was asked meanwhile.
async function look(ask) {
  const number = ++newestRequest;
  sayReading("Reading the file…");
  try {
    const answer = await ask();
    if (number !== newestRequest) return null;
    upload = answer.upload;
    sayReading(answer.notes.join(" "));
    return answer;
  } catch (error) {
    if (number === newestRequest) sayReading(error.message, true);
    return null;
  }
}

async function sendFile(file) {
  const body = new FormData();
  body.set("file", file);
  const headers = { "x-csrf-token": csrfToken };
  const response = await fetch("/api/v1/uploads", { method: "POST", headers, body }).catch(() => null);
  if (!response) throw new Error("The server is not responding.");
  const answer = await response.json().catch(() => ({}));
  const tooLarge = `The server responded with status ${response.status}. The file may be too large.`;
  if (!response.ok) throw new Error(answer.detail ?? tooLarge);
  return answer;
}

const askAgain = (choice) => look(() => requestJson(`/api/v1/uploads/${upload}?${new URLSearchParams(choice)}`));

async function chooseFile() {
  const [file] = form.elements.file.files;
  upload = null;
  newestRequest += 1;
  byId("source").hidden = true;
  byId("counts").textContent = "";
  form.elements.sheet.replaceChildren();
  sayReading("");
  if (!file) return;

  if (form.elements.folder) form.elements.folder.value = "";
  if (!form.elements.name.value) form.elements.name.value = file.name.replace(/\.[^.]*$/, "").replace(/[^\p{L}\p{N}_ .-]/gu, " ").trim().slice(0, 80);
  const preview = await look(() => sendFile(file));
  if (preview) showSource(preview);
}

async function choose(event) {
  const { name, value } = event.target;
  if (name === "file") await chooseFile();
  else if (name === "folder" && value) {
    form.elements.file.value = "";
    await chooseFile();
  } else if (name === "sheet") {
    const preview = await askAgain({ sheet: value });
    if (preview) showSource(preview);
  } else if (name === "labels" && value) {
    const preview = await askAgain({ sheet: form.elements.sheet.value, labels: value });
    if (preview) showClasses(preview);
  } else if (name === "labels") byId("counts").textContent = "";
  else if (name === "judges") showAudit();
  else if (name === "text") byId("template").hidden = !isTemplate();
}

function readForm() {
  const body = new FormData(form);
  const hasFile = Boolean(body.get("file")?.name);
  body.delete("file");
  const isAudit = Boolean(upload && form.elements.judges.value);
  if (isAudit) {
    for (const name of ["judges", "confidences"]) body.set(name, quoteName(body.get(name)));
  } else for (const name of ["judges", "confidences", "require"]) body.delete(name);
  if (!body.get("require")) body.delete("require");
  for (const name of ["sheet", "text", "image", "id_column", "labels"]) {
    if (!upload || byId("source").hidden) body.delete(name);
  }
  if (hasFile && !upload) throw new Error("Choose a file that can be read.");
  if (!upload) return body;

  body.set("upload", upload);
  if (byId("source").hidden) return body;
  if (byId("sheets").hidden) body.delete("sheet");
  if (isTemplate()) body.set("text", byId("template").querySelector("input").value);
  const shown = [...byId("shown").querySelectorAll("input:checked")];
  body.set("show", shown.map((box) => quoteName(box.value)).join(","));
  return body;
}

function fail(text) {
  status.className = "alarm";
  status.textContent = text;
  form.querySelector("button.main").disabled = false;
}

function describeEncoding(state) {
  const left = state.seconds_left == null ? "" : `, about ${Math.ceil(state.seconds_left)} s left`;
  return `${state.done.toLocaleString("en")} of ${state.total.toLocaleString("en")} items are encoded${left}.`;
}

// Links that could not be fetched, files that are no images and rows without a text are lost from the
// campaign: say so before it opens.
function openCampaign(result) {
  const address = `/c/${result.slug}`;
  const imported = result.imported;
  const leftOut = Object.entries(imported.left_out_files);
  if (!imported.failed && !leftOut.length && !imported.notes.length) {
    location.href = address;
    return;
  }

  const sentences = [...imported.notes];
  if (imported.failed) {
    sentences.push(`${imported.failed.toLocaleString("en")} images could not be fetched. ${imported.failed_items[0][1]}`);
  }
  if (leftOut.length) {
    const endings = leftOut.map(([ending, count]) => `${count.toLocaleString("en")} ${ending || "without an ending"}`);
    sentences.push(`Files that are no images that teeter reads were left out: ${endings.join(", ")}.`);
    const hasHeic = leftOut.some(([ending]) => ending === ".heic" || ending === ".heif");
    if (hasHeic) sentences.push("HEIC photographs are read if the server has pillow-heif.");
  }

  const link = document.createElement("a");
  link.href = address;
  link.textContent = "Open the campaign";
  status.className = "alarm";
  status.textContent = `${sentences.join(" ")} `;
  status.append(link);
}

async function waitForJob(job) {
  const response = await fetch(`/api/v1/jobs/${job}`).catch(() => null);
  const state = response?.ok ? await response.json() : { state: "waiting" };

  if (state.state === "done") openCampaign(state.result);
  else if (state.state === "failed") fail(state.detail);
  else {
    if (state.total) status.textContent = describeEncoding(state);
    setTimeout(() => waitForJob(job), 500);
  }
}

async function submit(event) {
  event.preventDefault();
  form.querySelector("button.main").disabled = true;
  status.className = "";
  status.textContent = "Reading and encoding the items. This may take a while…";

  let body;
  try {
    body = readForm();
  } catch (error) {
    return fail(error.message);
  }

  const headers = { "x-csrf-token": csrfToken };
  const response = await fetch(form.action, { method: "POST", headers, body }).catch(() => null);
  if (!response) return fail("The server is not responding.");

  const tooLarge = { detail: `The server responded with status ${response.status}. The file may be too large.` };
  const state = await response.json().catch(() => tooLarge);

  if (response.ok) await waitForJob(state.job);
  else fail(state.detail);
}

form?.addEventListener("submit", submit);
form?.addEventListener("change", choose);
