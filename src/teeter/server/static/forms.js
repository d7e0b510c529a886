// Forms that change something: their fields are sent to REST as JSON, and the page says what came of it.
//
// A form with `data-api` is sent by this script:
//
//   <form data-api="/api/v1/campaigns/texts/people" data-notice="{name} was added.">
//
// On the form, or on the button that sends it, which counts first:
//   data-api      the address of REST
//   data-method   POST by default
//   data-notice   what is said when it worked: {name} is a field of the answer, or else of what was sent;
//                 a list of sentences becomes one text
//   data-secret   the field of the answer to show once, in a code element, below the notice
//   data-wait     the answer is a job: wait until it is done, and go on with its result
//   data-link     the address of a file to download, which stands behind the notice; {name} as above
//   data-stay     show nothing new but the notice. Without it the page is read again, and its content replaced.
//
// On a field, a button or a select:
//   data-type     number, percent (as a share), optional (a number or null), boolean, lines (a list of texts),
//                 names (a list, separated by commas), list (of this text alone): what its text becomes in JSON.
//                 An <input type="number"> is a number, and a number without a value is not sent.
//                 Checkboxes of one name that are lists become the list of those that are checked.
//
// A form with enctype="multipart/form-data" is sent as it is, for its files.
//
// The notice stands in the form's own <output>, if it has one, or else in the page's #notice. Text is never
// read as HTML. The CSRF token goes along in a header.

const readers = {
  text: (text) => text,
  number: (text) => (text === "" ? undefined : Number(text)),
  percent: (text) => (text === "" ? undefined : Number(text) / 100),
  optional: (text) => (text === "" ? null : Number(text)),
  boolean: (text) => text === "true",
  names: (text) => text.split(",").map((name) => name.trim()).filter(Boolean),
  list: (text) => [text],
  lines: (text) => text.split("\n").map((line) => line.trim()).filter(Boolean),
};

function readForm(form, button) {
  const body = {};
  for (const field of form.elements) {
    const isOtherButton = field.type === "submit" && field !== button;
    if (!field.name || field.disabled || isOtherButton) continue;

    let value = field.type === "text" ? field.value.trim() : field.value;
    if (field.type === "checkbox" && field.dataset.type === "list") {
      const checked = body[field.name] ?? [];
      value = field.checked ? [...checked, value] : checked;
    } else if (field.type === "checkbox") value = field.checked;
    else value = readers[field.dataset.type ?? (field.type === "number" ? "number" : "text")](value);

    body[field.name] = value;
  }
  return body;
}

async function send(form, setting, button) {
  const token = document.querySelector('meta[name="csrf"]').content;
  const isMultipart = form.enctype === "multipart/form-data";
  const headers = { "x-csrf-token": token, accept: "application/json" };
  if (!isMultipart) headers["content-type"] = "application/json";

  const sent = isMultipart ? Object.fromEntries(new FormData(form, button)) : readForm(form, button);
  const body = isMultipart ? new FormData(form, button) : JSON.stringify(sent);
  const options = { method: setting("method") ?? "POST", headers, body };
  const response = await fetch(setting("api"), options).catch(() => null);
  if (!response) throw new Error("The server is not responding.");

  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(answer.detail ?? `The server responded with status ${response.status}.`);
  return { ...sent, ...answer };
}

// Returns the result of a job. Its fields take the place of the answer's.
async function waitForJob(answer) {
  for (let seconds = 0.3; ; seconds = Math.min(2 * seconds, 3)) {
    await new Promise((resolve) => setTimeout(resolve, 1000 * seconds));
    const response = await fetch(`/api/v1/jobs/${answer.job}`).catch(() => null);
    const job = response ? await response.json().catch(() => ({})) : {};
    if (job.state === "done") return { ...answer, ...job.result };
    if (job.state === "failed" || response?.status === 404) throw new Error(job.detail);
  }
}

// The page as it is now. A change may have ended or begun a session, so the CSRF token is a new one, too.
async function refresh() {
  const response = await fetch(location.href).catch(() => null);
  if (!response?.ok) return;

  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  document.querySelector('meta[name="csrf"]').content = page.querySelector('meta[name="csrf"]').content;
  document.body.setAttribute("hx-headers", page.body.getAttribute("hx-headers"));
  document.querySelector("header.top").replaceWith(page.querySelector("header.top"));

  // The notice stays: screen readers announce what changes in it, not what comes with it.
  const main = document.getElementById("main");
  const isContent = (part) => part.id !== "notice";
  for (const part of [...main.children].filter(isContent)) part.remove();
  main.append(...[...page.getElementById("main").children].filter(isContent));
  window.htmx?.process(main);
  document.dispatchEvent(new Event("refreshed"));
}

function say(output, text, isError, { secret, link } = {}) {
  output.className = isError ? "alarm" : "notice";
  output.setAttribute("role", isError ? "alert" : "status");
  output.replaceChildren(text);

  if (secret !== undefined) {
    const code = document.createElement("code");
    code.className = "token";
    code.textContent = secret;
    const line = document.createElement("p");
    line.append(code);
    output.append(line);
  }
  if (link !== undefined) {
    const anchor = document.createElement("a");
    anchor.href = link;
    anchor.download = "";
    anchor.textContent = "Download the file";
    output.append(" ", anchor);
  }
  output.scrollIntoView({ block: "nearest" });
}

async function submit(event) {
  const form = event.target;
  if (!form.matches("form[data-api]")) return;
  event.preventDefault();
  // A second click sends nothing: a second token, for one, would make the first useless.
  if (form.ariaBusy === "true") return;
  form.ariaBusy = "true";

  const button = event.submitter;
  const setting = (name) => button?.dataset[name] ?? form.dataset[name];
  const ownOutput = form.querySelector("output");
  try {
    let answer = await send(form, setting, button);
    if (setting("wait") !== undefined) {
      if (ownOutput) say(ownOutput, "This may take a while…", false);
      answer = await waitForJob(answer);
    }
    if (setting("stay") === undefined) await refresh();

    const output = ownOutput?.isConnected ? ownOutput : document.getElementById("notice");
    const fill = (text) => text?.replace(/\{(\w+)\}/g, (_, name) => [answer[name]].flat().join(" "));
    const link = fill(setting("link"));
    say(output, fill(setting("notice")) ?? "", false, { secret: answer[setting("secret")], link });
    // What had the focus may be gone.
    if (output !== ownOutput) output.focus();
  } catch (error) {
    say(ownOutput ?? document.getElementById("notice"), error.message, true);
  } finally {
    form.ariaBusy = "false";
  }
}

document.addEventListener("submit", submit);
