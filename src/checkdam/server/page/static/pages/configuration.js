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
  const options = execution.options?.length ? execution.options : withoutOrigin(execution["user-config"] ?? {});
  const settings = options.filter(({ origin }) => origin !== "default");
  const defaults = options.filter(({ origin }) => origin === "default");
  return html`<h2>Configuration</h2>
    <${Facts}
      facts=${[
        ["Restart strategy", execution["restart-strategy"]],
        ["Parallelism", execution["job-parallelism"]],
      ]}
    />
    <h3>Settings <span class="note">${format.number(settings.length)}</span></h3>
    ${settings.length ? html`<${Settings} label="Settings" settings=${settings} />` : html`<p class="muted">No setting is given: all have their defaults.</p>`}
    ${defaults.length
      ? html`<details>
          <summary>${format.number(defaults.length)} settings have their default</summary>
          <${Settings} label="Defaults" settings=${defaults} />
        </details>`
      : ""}`;
}

const withoutOrigin = (values) =>
  Object.entries(values)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([key, value]) => ({ key, value, origin: "" }));

function Settings({ label, settings }) {
  return html`<${Table} label=${label} head=${["Key", "Value", "From"]}>
    ${settings.map(
      ({ key, value, origin }) => html`<tr key=${key}>
        <th scope="row"><code>${key}</code></th>
        <td>${value === null ? html`<span class="muted">unset</span>` : html`<code>${String(value)}</code>`}</td>
        <td>${origin}</td>
      </tr>`,
    )}
  <//>`;
}
