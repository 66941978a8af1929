// How a state spreads over its key groups: one cell a group, darker where there is more.

import * as format from "./format.js";
import { html, useMemo, useState } from "./html.js";
import { useLive } from "./live.js";
import { Table, ErrorNotice, end } from "./widgets.js";

const STEPS = 8;
const MOST_CELLS = 512;
const ROWS = 100;

/** `parallelism` is that of the snapshot, where it is known. */
export function HeatMap({ at, asOf, parallelism }) {
  const { data, error } = useLive(at, Infinity);
  const [isOpen, setOpen] = useState(false);
  const groups = useMemo(() => (data ? everyGroup(data, parallelism) : null), [data, parallelism]);
  const cells = useMemo(() => (groups ? cellsOf(groups) : []), [groups]);
  const title = html`<h4>Size by key group ${asOf && html`<span class="muted small">as of ${asOf}</span>`}</h4>`;
  if (!at) return html`${title}<p class="muted">Available after the first completed checkpoint.</p>`;
  if (error) return html`${title}<${ErrorNotice} error=${error} />`;
  if (!groups) return html`${title}<p class="waiting">Loading…</p>`;
  if (!cells.length) return html`${title}<p class="muted">There are no key groups.</p>`;
  const most = Math.max(...cells.map((cell) => cell.weight));
  return html`${title}
    <figure class="heat">
      <figcaption>${wordsOf(groups)}</figcaption>
      <div class="cells" aria-hidden="true">
        ${bySubtask(cells).map(
          ([subtask, own]) =>
            html`<div key=${subtask} class="owner">
              <span class="name muted small">subtask ${subtask}</span>
              <span class="row"
                >${own.map(
                  (cell) => html`<i key=${cell.first} class="heat-${step(cell.weight, most)}" title=${titleOf(cell)}></i>`,
                )}</span
              >
            </div>`,
        )}
      </div>
      <div class="legend small muted" aria-hidden="true">
        none ${Array.from({ length: STEPS + 1 }, (_, at) => html`<i class="heat-${at}"></i>`)} ${amount(most, groups)}
      </div>
      <details open=${isOpen} onToggle=${(event) => setOpen(event.currentTarget.open)}>
        <summary>As a table, the largest first</summary>
        ${isOpen &&
        html`<${Table} label="Size by key group" head=${["Key group", "Subtask", end("Entries"), end("Bytes")]}>
          ${[...groups]
            .sort((a, b) => weight(b) - weight(a))
            .slice(0, ROWS)
            .map(
              (group) =>
                html`<tr key=${group["key-group"]}>
                  <th scope="row">${group["key-group"]}</th>
                  <td>${group.subtask ?? "-"}</td>
                  <td class="end">${format.number(group.entries)}</td>
                  <td class="end">${format.bytes(group.bytes)}</td>
                </tr>`,
            )}
        <//>`}
      </details>
    </figure>`;
}

const hasBytes = (groups) => groups.some((group) => group.bytes > 0);
const weight = (group) => (group.bytes > 0 ? group.bytes : (group.entries ?? 0));
const amount = (value, groups) => (hasBytes(groups) ? format.bytes(value) : format.plural(value, "entry").replace("entrys", "entries"));

/** Returns all key groups, including empty ones, which the server leaves out. */
function everyGroup(data, parallelism) {
  const known = new Map(data["key-groups"].map((group) => [group["key-group"], group]));
  const all = data["max-parallelism"] ?? Math.max(-1, ...known.keys()) + 1;
  const subtasks = parallelism ?? Math.max(0, ...data["key-groups"].map((group) => group.subtask ?? 0)) + 1;
  return Array.from(
    { length: all },
    (_, group) => known.get(group) ?? { "key-group": group, entries: 0, bytes: 0, subtask: Math.floor((group * subtasks) / all) },
  );
}

/** One cell a group, or one for several in a row where there are too many to see. */
function cellsOf(groups) {
  const sorted = [...groups].sort((a, b) => a["key-group"] - b["key-group"]);
  const each = Math.ceil(sorted.length / MOST_CELLS);
  const cells = [];
  for (const group of sorted) {
    const last = cells.at(-1);
    if (last && last.count < each && last.subtask === group.subtask) {
      last.count += 1;
      last.last = group["key-group"];
      last.weight += weight(group);
      last.entries += group.entries ?? 0;
      last.bytes += group.bytes ?? 0;
    } else {
      const { "key-group": first, subtask, entries = 0, bytes = 0 } = group;
      cells.push({ first, last: first, count: 1, subtask, weight: weight(group), entries: entries ?? 0, bytes: bytes ?? 0 });
    }
  }
  return cells;
}

function bySubtask(cells) {
  const found = new Map();
  for (const cell of cells) {
    const owner = cell.subtask ?? "?";
    if (!found.has(owner)) found.set(owner, []);
    found.get(owner).push(cell);
  }
  return [...found];
}

const step = (value, most) => (value <= 0 || most <= 0 ? 0 : Math.max(1, Math.ceil((STEPS * value) / most)));

function titleOf(cell) {
  const groups = cell.first === cell.last ? `key group ${cell.first}` : `key groups ${cell.first} to ${cell.last}`;
  return `${groups}: ${format.number(cell.entries)} entries, ${format.bytes(cell.bytes)}`;
}

function wordsOf(groups) {
  const weights = groups.map(weight);
  const total = weights.reduce((sum, value) => sum + value, 0);
  const mean = total / weights.length;
  const heaviest = groups.reduce((a, b) => (weight(b) > weight(a) ? b : a));
  const entries = groups.reduce((sum, group) => sum + (group.entries ?? 0), 0);
  if (total === 0) return `${format.plural(groups.length, "key group")}, all empty.`;
  const times = mean > 0 ? ` (${(weight(heaviest) / mean).toPrecision(2)} times the average)` : "";
  return `${format.plural(groups.length, "key group")}, ${format.number(entries)} entries, ${amount(total, groups)} in all; the largest is ${heaviest["key-group"]} with ${amount(weight(heaviest), groups)}${times}.`;
}
