// A picture of one checkpoint: a bar for every slot and operator, from the trigger to the acknowledgement.

import * as format from "./format.js";
import { html } from "./html.js";

const MOST_ROWS = 60;

/** What each subtask did when, in milliseconds from the trigger: [{slot, vertex, wait, sync, async, end}]. */
export function spans(parts) {
  const found = [];
  for (const [vertex, part] of parts) {
    for (const subtask of part.subtasks ?? []) {
      if (subtask.className !== "completed") continue;
      const sync = Math.max(0, subtask.checkpoint?.sync ?? 0);
      const async = Math.max(0, subtask.checkpoint?.async ?? 0);
      const end = Math.max(subtask.end_to_end_duration, sync + async);
      const wait = Math.min(Math.max(0, subtask.start_delay ?? 0), end - sync - async);
      found.push({ slot: subtask.index, vertex, wait, sync, async, end, bytes: subtask.checkpointed_size });
    }
  }
  return found.sort((a, b) => a.slot - b.slot);
}

/** The slot that was done last, in words; null if there is nothing to compare. */
export function verdict(found, nameOf) {
  if (!found.length) return null;
  const bySlot = Map.groupBy ? Map.groupBy(found, (span) => span.slot) : grouped(found);
  const ends = [...bySlot].map(([slot, own]) => ({ slot, span: own.reduce((a, b) => (work(b) > work(a) ? b : a)), end: Math.max(...own.map((each) => each.end)) }));
  ends.sort((a, b) => b.end - a.end);
  const [slowest, next] = ends;
  const { sync, async } = slowest.span;
  const cause = `most in ${nameOf(slowest.span.vertex)} (${format.duration(sync)} sync, ${format.duration(async)} async)`;
  const lead = next ? `, ${format.duration(slowest.end - next.end)} after the next` : "";
  return { slot: slowest.slot, words: `Slot ${slowest.slot} was the slowest: ${format.duration(slowest.end)} after the trigger${lead}; ${cause}.` };
}

const work = (span) => span.sync + span.async;

function grouped(found) {
  const groups = new Map();
  for (const span of found) groups.set(span.slot, [...(groups.get(span.slot) ?? []), span]);
  return groups;
}

/** Without those that had nothing to do; one row a slot where there are still too many: its longest. */
function thinned(all) {
  const busy = all.filter((span) => work(span) > 0 || span.bytes > 0);
  const found = busy.length ? busy : all;
  if (found.length <= MOST_ROWS) return found;
  return [...grouped(found).values()].map((own) => own.reduce((a, b) => (work(b) > work(a) ? b : a))).slice(0, MOST_ROWS);
}

export function Timeline({ checkpoint, parts, nameOf }) {
  const all = spans(parts);
  const slowest = verdict(all, nameOf);
  if (!slowest) return null;
  const rows = thinned(all);
  const whole = Math.max(1, checkpoint.end_to_end_duration, ...all.map((span) => span.end));
  const width = (ms) => ({ width: `${(100 * ms) / whole}%` });
  return html`<figure class="timeline" aria-labelledby="timeline-words">
    <figcaption id="timeline-words"><strong>Timeline.</strong> ${slowest.words}</figcaption>
    <div class="legend" aria-hidden="true">
      <span><i class="part wait"></i> until its turn</span> <span><i class="part sync"></i> synchronous</span>
      <span><i class="part async"></i> asynchronous</span> <span><i class="part ack"></i> until acknowledged</span>
    </div>
    <div class="rows" aria-hidden="true">
      ${rows.map((span, at) => {
        const isFirst = at === 0 || rows[at - 1].slot !== span.slot;
        const rest = Math.max(0, span.end - span.wait - span.sync - span.async);
        const words = `slot ${span.slot}, ${nameOf(span.vertex)}: ${format.duration(span.end)}, sync ${format.duration(span.sync)}, async ${format.duration(span.async)}, ${format.bytes(span.bytes)}`;
        return html`<div key=${`${span.slot} ${span.vertex}`} class="row ${isFirst ? "first" : ""} ${span.slot === slowest.slot ? "slow" : ""}" title=${words}>
          <span class="slot">${isFirst ? `slot ${span.slot}` : ""}</span>
          <span class="name">${nameOf(span.vertex)}</span>
          <span class="track">
            <i class="part wait" style=${width(span.wait)}></i><i class="part sync" style=${width(span.sync)}></i
            ><i class="part async" style=${width(span.async)}></i><i class="part ack" style=${width(rest)}></i>
          </span>
          <span class="figure">${format.duration(span.end)}</span>
        </div>`;
      })}
    </div>
  </figure>`;
}
