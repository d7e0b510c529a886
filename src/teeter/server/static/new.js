// The form for a new campaign: send it, then ask for its state until the campaign is there.

const form = document.getElementById("new");
const status = document.getElementById("status");
const csrfToken = document.querySelector('meta[name="csrf"]').content;

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

  const body = new FormData(form);
  if (!body.get("file")?.name) body.delete("file");

  const headers = { "x-csrf-token": csrfToken };
  const response = await fetch(form.action, { method: "POST", headers, body }).catch(() => null);
  if (!response) return fail("The server is not responding.");

  const tooLarge = { detail: `The server responded with status ${response.status}. The file may be too large.` };
  const state = await response.json().catch(() => tooLarge);

  if (response.ok) await waitForJob(state.job);
  else fail(state.detail);
}

form?.addEventListener("submit", submit);
