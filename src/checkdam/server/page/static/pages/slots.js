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
  const head = ["Slot", "Job", end("Subtask"), end("Process"), end("Tasks"), end("Memory in use"), end("Last heartbeat"), "Where"];
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
      : html`<${Table} label="Slots" head=${head}>
          ${data.taskmanagers.map(
            (manager) =>
              html`<tr key=${`${manager.id} ${manager.jobId} ${manager.subtask}`}>
                <th scope="row"><code>${manager.id}</code></th>
                <td>${manager.jobId ? html`<a href=${link("jobs", manager.jobId)}><code>${manager.jobId}</code></a>` : "-"}</td>
                <td class="end">${manager.subtask ?? "-"}</td>
                <td class="end">${manager.pid ?? "-"}</td>
                <td class="end">${manager.assignedTasks ?? "-"}</td>
                <td class="end">${format.bytes(memoryOf(manager))}</td>
                <td class="end">${sinceHeard(manager.timeSinceLastHeartbeat)}</td>
                <td>${manager.path}</td>
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
