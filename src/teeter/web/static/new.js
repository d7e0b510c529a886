// A new campaign: the form is sent, and its state asked for until it is there.
"use strict";

(() => {
  const form = document.getElementById("new"), told = document.getElementById("told");
  const csrf = document.querySelector('meta[name="csrf"]').content;
  if (!form) return;

  const fail = (text) => { told.className = "alarm"; told.textContent = text; form.querySelector("button.main").disabled = false; };

  async function watch(job) {
    const answer = await fetch(`/api/v1/jobs/${job}`).catch(() => null);
    const state = answer?.ok ? await answer.json() : { state: "waiting" };
    if (state.state === "done") location.href = `/c/${state.result.slug}`;
    else if (state.state === "failed") fail(state.detail);
    else setTimeout(() => watch(job), 500);
  }

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    form.querySelector("button.main").disabled = true;
    told.className = "";
    told.textContent = "Reading and encoding; this may take a while…";
    const body = new FormData(form);
    if (!body.get("file")?.name) body.delete("file");
    const answer = await fetch(form.action, { method: "POST", headers: { "x-csrf-token": csrf }, body }).catch(() => null);
    if (!answer) return fail("The server does not answer.");
    const state = await answer.json().catch(() => ({ detail: `The server answers ${answer.status}: the file may be too large.` }));
    if (answer.ok) watch(state.job);
    else fail(state.detail);
  });
})();
