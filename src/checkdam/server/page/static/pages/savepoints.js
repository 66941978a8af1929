// The savepoints of a job: they never expire, so what is done with them is up to the reader.

import { address } from "../api.js";
import * as format from "../format.js";
import { html, useState } from "../html.js";
import { useLive } from "../live.js";
import * as operations from "../operations.js";
import { link } from "../router.js";
import { Copied, Question, Table, Waiting, end, useReady } from "../widgets.js";

export function Savepoints({ jobId, isEnded }) {
  const { data, error } = useLive(address("jobs", jobId, "savepoints"), isEnded ? 10 : 1);
  const [asked, setAsked] = useState(null);
  useReady(data !== undefined);
  if (!data) return html`<${Waiting} error=${error} what="The savepoints cannot be listed." />`;
  const head = ["Savepoint", "Kind", "Completed", end("Size"), "Path", "Actions"];
  return html`<h2>Savepoints</h2>
    ${data.savepoints.length === 0
      ? html`<p class="muted">No savepoint of this job is known.</p>`
      : html`<${Table} label="Savepoints" head=${head} isStacked=${true}>
          ${data.savepoints.map(
            (savepoint) =>
              html`<tr key=${savepoint.id}>
                <th scope="row" data-label="Savepoint">${savepoint.id}</th>
                <td data-label="Kind">
                  ${savepoint.kind === "SYNC_SAVEPOINT" ? "the job stopped with it" : "savepoint"},
                  ${" "}${String(savepoint.format ?? "").toLowerCase()}
                </td>
                <td data-label="Completed">${format.date(savepoint.completed_timestamp)}</td>
                <td data-label="Size" class="end">${format.bytes(savepoint.state_size)}</td>
                <td data-label="Path" class="told">${savepoint.path ? html`<${Copied} text=${savepoint.path} />` : "-"}</td>
                <td data-label="Actions">
                  <a href=${link("jobs", jobId, "state", nameOf(savepoint.path))}>Show its state</a>${" "}
                  <button type="button" class="small" onClick=${() => setAsked(savepoint.path)}>Dispose…</button>
                </td>
              </tr>`,
          )}
        <//>`}
    ${asked &&
    html`<${Question}
      title="Delete this savepoint?"
      submit="Delete the savepoint"
      isGrave=${true}
      onSubmit=${() => operations.dispose(jobId, asked)}
      onClose=${() => setAsked(null)}
    >
      <p>Its files are deleted; no job can start from it any more.</p>
      <p><code class="value">${asked}</code></p>
    <//>`}`;
}

export const nameOf = (path) => path.replace(/\/+$/, "").split("/").at(-1);
