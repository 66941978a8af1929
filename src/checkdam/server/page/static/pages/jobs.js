// All jobs that the server knows: those that run, those that have ended.

import * as format from "../format.js";
import { HealthWords } from "../health.js";
import { html } from "../html.js";
import { useLive } from "../live.js";
import { link } from "../router.js";
import { Badge, Table, Waiting, end, useReady } from "../widgets.js";

const ENDED = new Set(["FINISHED", "CANCELED", "FAILED", "SUSPENDED"]);

export function Jobs() {
  const { data, error } = useLive("jobs/overview");
  useReady(data !== undefined);
  if (!data) return html`<h1 tabindex="-1">Jobs</h1><${Waiting} error=${error} what="The jobs cannot be listed." />`;
  const newestFirst = [...data.jobs].sort((a, b) => b["start-time"] - a["start-time"]);
  const running = newestFirst.filter((job) => !ENDED.has(job.state));
  const ended = newestFirst.filter((job) => ENDED.has(job.state));
  return html`<h1 tabindex="-1">Jobs</h1>
    <section aria-labelledby="running">
      <h2 id="running">Running <span class="note">${running.length}</span></h2>
      <${List} jobs=${running} label="Running jobs" empty="No job is running." />
    </section>
    <section aria-labelledby="ended">
      <h2 id="ended">Not running <span class="note">${ended.length}</span></h2>
      <${List} jobs=${ended} label="Jobs that are not running" empty="No job has ended yet." />
    </section>`;
}

function List({ jobs, label, empty }) {
  if (!jobs.length) return html`<p class="muted">${empty}</p>`;
  const isRunning = !ENDED.has(jobs[0].state);
  const head = ["Name", "State", "Started", end("Duration"), isRunning && "Health", "Last checkpoint", "Job id"].filter(Boolean);
  return html`<${Table} label=${label} head=${head} isStacked=${true}>
    ${jobs.map((job) => html`<${Row} key=${job.jid} job=${job} />`)}
  <//>`;
}

function Row({ job }) {
  return html`<tr>
    <th scope="row" data-label="Name"><a href=${link("jobs", job.jid)}>${job.name}</a></th>
    <td data-label="State"><${Badge} status=${job.state} /></td>
    <td data-label="Started">${format.date(job["start-time"])}</td>
    <td data-label="Duration" class="end">${format.duration(job.duration)}</td>
    ${!ENDED.has(job.state) &&
    html`<td data-label="Health" class="told"><${HealthWords} health=${job.health} now=${job["start-time"] + job.duration} /></td>`}
    <td data-label="Last checkpoint" class="told"><${LastCheckpoint} job=${job} /></td>
    <td data-label="Job id"><code>${job.jid}</code></td>
  </tr>`;
}

function LastCheckpoint({ job }) {
  const latest = job["last-checkpoint"];
  if (!latest) return html`<span class="muted">none</span>`;
  return html`<a href=${link("jobs", job.jid, "checkpoints", latest.id)}>${latest.id}</a>${" "}
    <span class="muted"
      >at ${format.date(latest.timestamp)}, ${format.duration(latest.duration)}, ${format.bytes(latest.state_size)}</span
    >`;
}
