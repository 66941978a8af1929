// How the job was set up. Values that look like secrets come masked from the server.

import * as format from "../format.js";
import { address } from "../api.js";
import { html } from "../html.js";
import { useLive } from "../live.js";
import { Facts, Table, Waiting, useReady } from "../widgets.js";

export function Configuration({ jobId }) {
  const { data, error } = useLive(address("jobs", jobId, "config"), Infinity);
  useReady(data !== undefined);
  if (!data) return html`<${Waiting} error=${error} what="The configuration cannot be shown." />`;
  const execution = data["execution-config"] ?? {};
  const settings = Object.entries(execution["user-config"] ?? {}).sort(([a], [b]) => (a < b ? -1 : 1));
  return html`<h2>Configuration</h2>
    <${Facts}
      facts=${[
        ["Restart strategy", execution["restart-strategy"]],
        ["Parallelism", execution["job-parallelism"]],
      ]}
    />
    <h3>Settings <span class="note">${format.number(settings.length)}</span></h3>
    ${settings.length
      ? html`<${Table} label="Settings" head=${["Key", "Value"]}>
          ${settings.map(
            ([key, value]) => html`<tr key=${key}><th scope="row"><code>${key}</code></th><td><code>${String(value)}</code></td></tr>`,
          )}
        <//>`
      : html`<p class="muted">Nothing is set; all has its default.</p>`}`;
}
