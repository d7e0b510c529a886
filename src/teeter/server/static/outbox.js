// Answers on their way to the server.
//
// An answer is written to the browser's local storage before it is sent, and removed when the server has said that it is
// on disk. So an answer survives a closed tab, a dead server and a lost connection. Entries are sent one after the other,
// in order: an undo must arrive after the answer it undoes.
//
// Each entry has a storage key of its own, so two tabs never overwrite each other. Both may send the same entry: the
// server records the same answer only once. A browser that cannot store anything still sends.

import { apiUrl, requestJson, start } from "./shared.js";

const PREFIX = `teeter outbox ${start.campaign} ${JSON.stringify(start.annotator)} `;
const FIRST_DELAY = 500;
const LONGEST_DELAY = 8000;

/** Whether an entry takes an answer or a decision back. */
export const isUndo = (entry) => entry.what === "undo" || entry.what === "decisions/undo";

export class Outbox {
  /** Set when the last attempt failed. */
  error = null;

  #entries = readStored();
  #isSending = false;
  #delay = FIRST_DELAY;
  #count = 0;

  /**
   * @param handlers `onChange()` after every change, `onSent(entry, result)`, `onFailed(entry, error)`.
   */
  constructor(handlers) {
    this.handlers = handlers;
  }

  get entries() { return this.#entries; }
  get length() { return this.#entries.length; }

  hasItem(item) { return this.#entries.some((entry) => entry.body.item === item); }

  post(what, body) {
    const entry = { what, body };
    this.#store(entry);
    this.#entries.push(entry);
    this.handlers.onChange();
    this.send();
  }

  /** Take the newest entry back if it is about this item and not on its way yet. Returns whether it was. */
  withdraw(item) {
    const newest = this.#entries.at(-1);
    const isOnItsWay = this.#isSending && this.#entries.length === 1;
    if (!newest || newest.body.item !== item || isGone(newest) || isOnItsWay) return false;

    remove(this.#entries.pop());
    this.handlers.onChange();
    this.send();
    return true;
  }

  /** Give up an entry that the server refuses. */
  discard(entry) {
    this.#entries = this.#entries.filter((other) => other !== entry);
    remove(entry);
    this.error = null;
    this.#isSending = false;
    this.handlers.onChange();
    this.send();
  }

  async send() {
    if (this.#isSending || !this.#entries.length) return;

    this.#isSending = true;
    const entry = this.#entries[0];

    try {
      const result = await this.#deliver(entry);
      this.#nameUndone(entry, result?.number);  // one that came after the entry was removed from the storage
      this.#entries.shift();
      this.error = null;
      this.#delay = FIRST_DELAY;
      this.#isSending = false;
      this.handlers.onSent(entry, result);
    } catch (error) {
      this.#fail(entry, error);
      return;
    }

    this.handlers.onChange();
    this.send();
  }

  async #deliver(entry) {
    return withLock(async () => {
      // Another tab may have sent the entry while this one waited for the lock.
      if (isGone(entry) && (entry.isAdopted || isUndo(entry))) return true;

      const result = await this.#request(entry);
      this.#nameUndone(entry, result?.number);
      remove(entry);
      return result;
    });
  }

  async #request(entry) {
    if (!isUndo(entry)) return requestJson(apiUrl(`/${entry.what}`), entry.body);

    // Another tab that sent the answer knows its number. An answer that was refused has none: nothing is to be undone.
    const number = entry.body.number ?? readBody(entry)?.number;
    return number ? requestJson(apiUrl(`/${entry.what}`), { number }) : null;
  }

  // An undo that waits for its answer to arrive names the answer by the number that it got.
  #nameUndone(sent, number) {
    const next = this.#entries.find((entry) => entry !== sent && entry.body.item === sent.body.item);
    if (!number || !next || !isUndo(next) || next.body.number) return;

    next.body.number = number;
    if (next.isStored) write(next);
  }

  #fail(entry, error) {
    this.error = error;
    this.handlers.onFailed(entry, error, isFinal(error));

    if (!isFinal(error) && !error.isOtherAnnotator) {
      setTimeout(() => { this.#isSending = false; this.send(); }, this.#delay);
      this.#delay = Math.min(2 * this.#delay, LONGEST_DELAY);
    } else {
      // A refused answer waits for the annotator. Answers of another annotator wait for a reload.
      this.#isSending = error.isOtherAnnotator;
    }

    this.handlers.onChange();
  }

  #store(entry) {
    const random = [...crypto.getRandomValues(new Uint32Array(2))].map((part) => part.toString(36)).join("");
    const time = String(Date.now()).padStart(15, "0");
    const count = String(this.#count++).padStart(6, "0");
    entry.key = `${PREFIX}${time} ${count} ${random}`;

    write(entry);
  }
}

function write(entry) {
  try {
    localStorage.setItem(entry.key, JSON.stringify({ what: entry.what, body: entry.body }));
    entry.isStored = true;
  } catch { /* The entry is sent from memory. */ }
}

function readBody(entry) {
  try {
    return JSON.parse(localStorage.getItem(entry.key))?.body;
  } catch {
    return null;
  }
}

// Entries that an earlier page could not send. Keys sort by time.
function readStored() {
  try {
    const keys = Object.keys(localStorage).filter((key) => key.startsWith(PREFIX)).sort();
    return keys.map((key) => ({ ...JSON.parse(localStorage.getItem(key)), key, isStored: true, isAdopted: true }));
  } catch {
    return [];
  }
}

function remove(entry) {
  try { localStorage.removeItem(entry.key); } catch { /* It was never stored. */ }
}

// Whether another tab has sent the entry and removed it.
function isGone(entry) {
  try {
    return entry.isStored === true && localStorage.getItem(entry.key) === null;
  } catch {
    return false;
  }
}

// Statuses after which sending the same again would fail again. 401, 403 and 429 may pass.
function isFinal(error) {
  return error.status >= 400 && error.status < 500 && ![401, 403, 429].includes(error.status);
}

// One tab sends at a time, so that entries of two tabs do not overtake each other.
function withLock(action) {
  return navigator.locks ? navigator.locks.request(PREFIX, action) : action();
}
