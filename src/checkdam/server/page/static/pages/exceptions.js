// What went wrong: the newest failure open, with the user's own frames first.

import { address } from "../api.js";
import * as format from "../format.js";
import { html } from "../html.js";
import { useLive } from "../live.js";
import { Facts, Waiting, useReady } from "../widgets.js";

export function Exceptions({ jobId, isEnded }) {
  const { data, error } = useLive(address("jobs", jobId, "exceptions"), isEnded ? Infinity : 1);
  useReady(data !== undefined);
  if (!data) return html`<${Waiting} error=${error} what="The exceptions cannot be shown." />`;
  const { entries, truncated } = data.exceptionHistory;
  if (!entries.length) return html`<h2>Exceptions</h2><p class="muted">The job has had no failure.</p>`;
  return html`<h2>Exceptions</h2>
    <p class="muted">${format.plural(entries.length, "failure")}, the newest first${truncated ? "; older ones are not kept" : ""}.</p>
    ${entries.map((entry, at) => html`<${Entry} key=${`${entry.timestamp}-${entry.exceptionName}`} entry=${entry} isOpen=${at === 0} />`)}`;
}

/** The slot of a failed subtask: `count (2/4)` ran in slot 1. */
function slotOf({ taskName, endpoint }) {
  const subtask = /\((\d+)\/\d+\)$/.exec(taskName ?? "")?.[1];
  return subtask && endpoint ? format.slot(subtask - 1, endpoint) : null;
}

function Entry({ entry, isOpen }) {
  return html`<details class="exception" open=${isOpen}>
    <summary>
      <strong>${entry.exceptionName}</strong> <span class="words">${entry.message ?? ""}</span>
      <span class="muted"> ${format.date(entry.timestamp)}</span>
    </summary>
    <${Facts}
      facts=${[
        ["Operator", entry.taskName ?? "(none: the job itself)"],
        slotOf(entry) && ["Slot", slotOf(entry)],
      ]}
    />
    <pre tabindex="0" aria-label="Traceback">${entry.stacktrace}</pre>
  </details>`;
}
