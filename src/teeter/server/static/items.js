// Going back in the history shows the rows of an earlier search: put its words back into the fields.

document.addEventListener("htmx:historyRestore", () => {
  const query = new URLSearchParams(location.search);

  for (const field of document.querySelectorAll(".tools [name]")) {
    const fallback = field.name === "state" ? "all" : "";
    field.value = query.get(field.name) ?? fallback;
  }
});
