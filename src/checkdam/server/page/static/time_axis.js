// One time axis for all plots: the same stretch of time is on show in each, and stays while new data comes.

import { useEffect, useState } from "./html.js";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;

/** How much of the past can be chosen, as [words, milliseconds]. */
export const SPANS = [
  ["10 min", 10 * MINUTE],
  ["1 h", HOUR],
  ["6 h", 6 * HOUR],
  ["24 h", 24 * HOUR],
  ["All", Infinity],
];

/** What is marked in plots, by kind: [letter, words, plural, the colour's name]. Letters tell them apart without colour. */
export const MARKS = {
  SAVEPOINT: ["S", "savepoint", "savepoints", "--good"],
  CHECKPOINT_FAILED: ["×", "failed checkpoint", "failed checkpoints", "--bad"],
  FAILOVER: ["!", "failover", "failovers", "--failover"],
  RESCALE: ["R", "rescale", "rescales", "--rescale"],
};

const axis = { jobId: null, span: HOUR, zoom: null, first: 0, last: 0, events: [] };
const listeners = new Set();

function changed() {
  for (const listener of listeners) listener({});
}

/** What is on show, in milliseconds: the part that was zoomed to, else the last `span` of what is known. */
export function range() {
  if (axis.zoom) return axis.zoom;
  const from = Math.max(axis.first, axis.last - axis.span);
  return [from, Math.max(axis.last, from + 1000)];
}

/** Take what is known of a job: its first and last moment, and its events. Another job starts without a zoom. */
export function know({ jobId, first, last, events }) {
  if (jobId !== axis.jobId) Object.assign(axis, { zoom: null, span: HOUR });
  Object.assign(axis, { jobId, first, last, events });
}

export function showLast(span) {
  Object.assign(axis, { span, zoom: null });
  changed();
}

export function zoomTo(from, to) {
  axis.zoom = [from, to];
  changed();
}

export const unzoom = () => showLast(axis.span);

/** Events on show, the newest first. */
export function eventsShown() {
  const [from, to] = range();
  return axis.events.filter(({ at }) => at >= from && at <= to).reverse();
}

/** Re-render, or call `listener`, when another stretch of time is chosen. */
export function useTimeAxis(listener) {
  const [, render] = useState({});
  useEffect(() => {
    const told = listener ?? render;
    listeners.add(told);
    return () => listeners.delete(told);
  }, []);
  return { range: range(), span: axis.zoom ? null : axis.span };
}
