// Answer many items with one key, and take all of it back with one undo. The buttons are in part_bulk.html.

import { ClassFinder, typesToFind } from "./class_finder.js";
import { apiUrl, byId, requestJson } from "./shared.js";

/** The server takes no more items at once. */
export const MOST_AT_ONCE = 200;

export class BulkAnswers {
  #buttons = [...byId("choices").children];
  #finder;
  #given = [];  // what can be undone, oldest first
  #running = null;  // the answer or undo that is being sent

  /**
   * @param chosen returns the ids of the items to answer.
   * @param onChange is called after an answer or an undo, with the ids that were answered, if any.
   */
  constructor(chosen, onChange) {
    this.chosen = chosen;
    this.onChange = onChange;
    this.#finder = new ClassFinder(this.#buttons, (label) => { this.#finder.clear(); this.answer(label); });

    for (const button of this.#buttons) button.addEventListener("click", () => this.answer(button.dataset.label));
    byId("undo").addEventListener("click", () => this.undo());
  }

  say(text) { byId("said").textContent = text; }

  async answer(label) {
    const items = this.chosen();
    if (!items.length) return this.say("Tick items first.");
    if (items.length > MOST_AT_ONCE) return this.say(`One key answers up to ${MOST_AT_ONCE} items: untick some.`);

    await this.#send(async () => {
      this.say(`Saving ${items.length}…`);
      // An answer about one item is not in bulk, but what the model says of it was in view.
      const receipt = items.length === 1
        ? await requestJson(apiUrl("/answers"), { item: items[0], label, origin: "seen" })
        : await requestJson(apiUrl("/answers/bulk"), { items, label });
      const count = receipt.recorded ? receipt.count : 0;
      if (count) this.#given.push(receipt.number);

      const kept = items.length - count;
      const rest = kept ? ` ${kept} had this answer, or one that you gave about the item alone.` : "";
      await this.onChange(items);
      this.say(`${count === 1 ? "1 item is" : `${count} items are`} ${label} now.${rest}`);
    });
  }

  async undo() {
    await this.#running;  // what was just answered is what is taken back
    const number = this.#given.at(-1);
    if (!number) return;

    await this.#send(async () => {
      const result = await requestJson(apiUrl("/undo"), { number });
      this.#given.pop();
      await this.onChange([]);
      if (result) this.say(`${result.count === 1 ? "1 answer was" : `${result.count} answers were`} taken back.`);
      else this.say("Nothing was undone, because you have answered or undone something elsewhere since.");
    });
  }

  /** Do what a key stands for. Returns whether it stands for something. */
  onKey(event) {
    const { key } = event;
    if (key === byId("undo").dataset.key) {
      this.undo();
      return true;
    }
    if (typesToFind) {
      if (key.length === 1 && key !== " ") byId("find").focus();  // the letter itself is typed into the field
      return false;
    }
    const button = this.#buttons.find(({ dataset }) => dataset.key && dataset.key === key.toLowerCase());
    if (button) this.answer(button.dataset.label);
    return button !== undefined;
  }

  // One request at a time: a second key press would answer items that are about to change.
  async #send(action) {
    if (this.#running) return;
    this.#running = action().catch((error) => this.say(error.message));
    await this.#running;
    this.#running = null;
    byId("undo").disabled = !this.#given.length;
  }
}
