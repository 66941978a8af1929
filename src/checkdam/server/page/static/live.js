// What the server knows, kept fresh: every path that is on show is asked for again and again, each once however many
// show it. An answer equal to the last one changes nothing on the page.

import { askForText, parse, Refused, Unreachable } from "./api.js";
import { useEffect, useState } from "./html.js";

const SLOWEST = 30_000;
const LONG_PATIENCE = 300_000; // for what is asked once, such as a comparison: asking again would begin it again
const HIDDEN_TIMES = 10; // how much less often a hidden page polls
const KEPT = 200; // paths whose last answer is remembered

let interval = 3000;
const entries = new Map();

/** Whether the server answers. `since` is the time of the last answer. */
export const connection = { isGone: false, since: Date.now(), end: null, listeners: new Set() };

export function setRefreshInterval(ms) {
  if (ms > 0) interval = ms;
}

export const refreshInterval = () => interval;

class Entry {
  data = undefined;
  error = null;
  text = null;
  failures = 0;
  timer = null;
  isAsking = false;
  listeners = new Map(); // to how many times the interval each wants

  constructor(path) {
    this.path = path;
  }

  subscribe(listener, times) {
    const isSooner = times < Math.min(...this.listeners.values()); // of none: Infinity
    this.listeners.set(listener, times);
    if (this.listeners.size === 1 || isSooner) this.refresh();
  }

  unsubscribe(listener) {
    this.listeners.delete(listener);
    if (this.listeners.size === 0) clearTimeout(this.timer);
  }

  async refresh() {
    clearTimeout(this.timer);
    if (this.isAsking) return;
    this.isAsking = true;
    try {
      const isOnce = Math.min(...this.listeners.values()) === Infinity;
      const text = await askForText(this.path, isOnce ? { patience: LONG_PATIENCE } : {});
      heard();
      this.failures = 0;
      this.take(text);
    } catch (failure) {
      this.failures += 1;
      this.fail(failure);
    } finally {
      this.isAsking = false;
    }
    this.schedule();
  }

  take(text) {
    if (text === this.text && this.error === null) return;
    this.data = parsed(text, this.path);
    this.text = text;
    this.error = null;
    this.tell();
  }

  fail(failure) {
    if (failure instanceof Unreachable) {
      lost();
      return; // what is shown stays; the notice says that it is old
    }
    if (!(failure instanceof Refused)) throw failure;
    heard();
    if (this.error?.message === failure.message) return;
    this.error = failure;
    this.tell();
  }

  schedule() {
    if (this.listeners.size === 0) return;
    const times = Math.min(...this.listeners.values());
    if (times === Infinity && this.failures === 0) return;
    const usual = interval * (times === Infinity ? 1 : times) * (document.hidden ? HIDDEN_TIMES : 1);
    const delay = this.failures ? Math.min(usual * 2 ** Math.min(this.failures - 1, 10), SLOWEST) : usual;
    this.timer = setTimeout(() => this.refresh(), delay);
  }

  tell() {
    for (const listener of this.listeners.keys()) listener({});
  }
}

/** Reads an answer. A proxy may answer with a page of its own: that is an error, and the request is repeated. */
function parsed(text, path) {
  try {
    return parse(text, path);
  } catch {
    throw new Refused(0, "The answer is not JSON: it does not come from a Checkdam server.");
  }
}

/** Say that the server may end: its job has "ended", or is "ending" because it was asked to; null: it should answer. */
export function expectEnd(end) {
  if (connection.end === end) return;
  connection.end = end;
  for (const listener of connection.listeners) listener({});
}

function heard() {
  connection.since = Date.now();
  if (connection.isGone) setGone(false);
}

function lost() {
  if (!connection.isGone) setGone(true);
}

function setGone(isGone) {
  connection.isGone = isGone;
  for (const listener of connection.listeners) listener({});
}

/** Ask for everything on show again, now: something has been done, or the reader came back. */
export function refreshAll() {
  for (const entry of entries.values()) if (entry.listeners.size) entry.refresh();
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden) refreshAll();
});

function entryFor(path) {
  let entry = entries.get(path);
  if (!entry) {
    if (entries.size >= KEPT) {
      const idle = [...entries].find(([, other]) => other.listeners.size === 0);
      if (idle) entries.delete(idle[0]);
    }
    entry = new Entry(path);
    entries.set(path, entry);
  }
  return entry;
}

/**
 * The newest answer to `path` as {data, error}, asked for again every `times` intervals; Infinity: once.
 * A null path asks for nothing. `data` keeps the last good answer while errors come.
 */
export function useLive(path, times = 1) {
  const [, changed] = useState({});
  useEffect(() => {
    if (!path) return undefined;
    const entry = entryFor(path);
    entry.subscribe(changed, times);
    return () => entry.unsubscribe(changed);
  }, [path, times]);
  const entry = path ? entryFor(path) : null;
  return { data: entry?.data, error: entry?.error ?? null };
}

export function useConnection() {
  const [, changed] = useState({});
  useEffect(() => {
    connection.listeners.add(changed);
    return () => connection.listeners.delete(changed);
  }, []);
  return connection;
}
