// The processes that hold the state; Flink's word for them is task managers.

import * as format from "../format.js";
import { html } from "../html.js";
import { useLive } from "../live.js";
import { link } from "../router.js";
import { Facts, Table, Waiting, end, useReady } from "../widgets.js";

const MEGABYTE = 1024 * 1024;

export function Slots() {
  const { data, error } = useLive("taskmanagers");
  const overview = useLive("overview").data;
  useReady(data !== undefined);
  if (!data) return html`<h1 tabindex="-1">Slots</h1><${Waiting} error=${error} what="The slots cannot be listed." />`;
  const head = ["Slot", "Job", "Host", end("Process"), end("Tasks"), end("Memory in use"), end("Last heartbeat")];
  return html`<h1 tabindex="-1">Slots</h1>
    ${overview &&
    html`<${Facts}
      facts=${[
        ["Slots", format.number(overview["slots-total"])],
        ["Free", format.number(overview["slots-available"])],
        ["Jobs running", format.number(overview["jobs-running"])],
        ["Finished", format.number(overview["jobs-finished"])],
        ["Cancelled", format.number(overview["jobs-cancelled"])],
        ["Failed", format.number(overview["jobs-failed"])],
      ]}
    />`}
    ${data.taskmanagers.length === 0
      ? html`<p class="muted">No slot is running.</p>`
      : html`<${Table} label="Slots" head=${head} isStacked=${true}>
          ${data.taskmanagers.map(
            (manager) =>
              html`<tr key=${`${manager.id} ${manager.jobId} ${manager.subtask}`}>
                <th scope="row">${manager.subtask === undefined ? manager.id : `slot ${manager.subtask}`}</th>
                <td data-label="Job">${manager.jobId ? html`<a href=${link("jobs", manager.jobId)}><code>${manager.jobId}</code></a>` : "-"}</td>
                <td data-label="Host">${manager.id.replace(/:\d+$/, "")}</td>
                <td data-label="Process" class="end">${manager.pid ?? "-"}</td>
                <td data-label="Tasks" class="end">${manager.assignedTasks ?? "-"}</td>
                <td data-label="Memory in use" class="end">${format.bytes(memoryOf(manager))}</td>
                <td data-label="Last heartbeat" class="end">${sinceHeard(manager.timeSinceLastHeartbeat)}</td>
              </tr>`,
          )}
        <//>`}`;
}

function memoryOf(manager) {
  return manager.memory ?? (manager.totalResource?.taskHeapMemory > 0 ? manager.totalResource.taskHeapMemory * MEGABYTE : -1);
}

/** Flink sends the moment of the last heartbeat under this name, not the time since. */
function sinceHeard(value) {
  if (!(value > 0)) return "-";
  return value > 1e11 ? format.date(value) : `${format.duration(value)} ago`;
}
