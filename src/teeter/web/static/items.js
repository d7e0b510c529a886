// Going back shows the rows of an earlier search: its words go back into the fields.
"use strict";

document.addEventListener("htmx:historyRestore", () => {
  const asked = new URLSearchParams(location.search);
  for (const field of document.querySelectorAll(".tools [name]")) field.value = asked.get(field.name) ?? (field.name === "state" ? "all" : "");
});
