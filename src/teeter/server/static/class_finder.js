// Find a class by typing: the field filters the class buttons, Enter chooses the marked one.
//
// It is there with more than 16 classes. With more classes than shortcuts, every letter goes into it.

import { byId } from "./shared.js";

/** Whether typing a letter finds a class instead of being a shortcut. */
export const typesToFind = byId("find")?.hasAttribute("data-always") ?? false;

// Accents and case do not matter: "cafe" finds "Café".
const normalize = (text) => text.normalize("NFD").replace(/\p{Mark}/gu, "").toLowerCase();

export class ClassFinder {
  #field = byId("find");
  #marked = 0;

  /** @param choose called with the name of the class that was chosen. */
  constructor(buttons, choose) {
    this.buttons = buttons;
    this.choose = choose;
    this.#field?.addEventListener("input", () => this.#filter());
    this.#field?.addEventListener("keydown", (event) => this.#onKey(event));
  }

  get isThere() { return this.#field !== null; }
  get isEmpty() { return !this.#field?.value; }
  get text() { return this.#field?.value ?? ""; }

  focus() { this.#field.focus(); }

  clear() {
    if (!this.#field) return;
    this.#field.value = "";
    this.#filter();
  }

  #visible() { return this.buttons.filter((button) => !button.hidden); }

  #filter() {
    const typed = normalize(this.#field.value.trim());
    const rank = (button) => {
      const name = normalize(button.dataset.label);
      if (name.startsWith(typed)) return 0;
      return name.includes(typed) ? 1 : 2;
    };

    for (const button of this.buttons) {
      const order = rank(button);
      button.hidden = order === 2;
      button.style.order = order;  // names that begin with what was typed come first
    }

    this.#mark(0);
  }

  // The matches in the order in which they are shown.
  #matches() {
    return this.#visible().sort((first, second) => first.style.order - second.style.order);
  }

  #mark(index) {
    const matches = this.#matches();
    this.#marked = Math.max(0, Math.min(index, matches.length - 1));

    for (const button of this.buttons) button.classList.remove("marked");
    if (this.isEmpty || !matches.length) return;

    const button = matches[this.#marked];
    button.classList.add("marked");
    button.scrollIntoView({ block: "nearest" });
  }

  #onKey(event) {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      this.#mark(this.#marked + (event.key === "ArrowDown" ? 1 : -1));
    } else if (event.key === "Enter" && !this.isEmpty) {
      const button = this.#matches()[this.#marked];
      if (!button) return;
      this.choose(button.dataset.label);
      if (!typesToFind) this.#field.blur();  // keys are shortcuts again
    } else if (event.key === "Escape") {
      this.clear();
      this.#field.blur();
    } else {
      return;
    }

    event.preventDefault();
    event.stopPropagation();
  }
}
