// The buttons of a job and the questions they ask first.

import { html, useState } from "./html.js";
import { Question } from "./widgets.js";
import * as operations from "./operations.js";

const RUNNING = "RUNNING";
const CANCELLABLE = new Set(["RUNNING", "CREATED", "RESTARTING", "INITIALIZING", "FAILING"]);

export function Actions({ job, directory }) {
  const [asked, setAsked] = useState(null);
  const isRunning = job.state === RUNNING;
  const close = () => setAsked(null);
  const button = (name, words, isOpen, kind = "") =>
    html`<button
      type="button"
      class=${kind}
      disabled=${!isOpen}
      title=${isOpen ? null : `The job is ${job.state}`}
      onClick=${() => setAsked(name)}
    >
      ${words}
    </button>`;
  const questions = { checkpoint: Checkpoint, savepoint: Savepoint, stop: Stop, rescale: Rescale, cancel: Cancel };
  const Asked = questions[asked];
  return html`<div class="actions" role="group" aria-label="Actions on this job">
      ${button("checkpoint", "Checkpoint", isRunning)} ${button("savepoint", "Savepoint", isRunning)}
      ${button("rescale", "Rescale", isRunning)} ${button("stop", "Stop with savepoint", isRunning)}
      ${button("cancel", "Cancel", CANCELLABLE.has(job.state), "grave")}
    </div>
    ${Asked && html`<${Asked} job=${job} directory=${directory} onClose=${close} />`}`;
}

function Checkpoint({ job, onClose }) {
  const go = (values) => operations.takeCheckpoint(job.jid, { full: values.full === "on" });
  return html`<${Question} title="Take a checkpoint" submit="Take checkpoint" onSubmit=${go} onClose=${onClose}>
    <p>Taken at the next barrier, in addition to the periodic checkpoints.</p>
    <label class="check"><input type="checkbox" name="full" /> Full: write all state anew, share no older file</label>
  <//>`;
}

function Target({ directory }) {
  return html`<label
      >Directory
      <input
        name="directory"
        type="text"
        autocomplete="off"
        spellcheck="false"
        required=${!directory}
        placeholder=${directory ?? "/where/savepoints/go"}
        aria-describedby="target-hint"
      />
    </label>
    <p id="target-hint" class="muted">
      ${directory
        ? html`Default: <code>${directory}</code>, as configured.`
        : "No directory is configured: enter one. The savepoint gets its own directory below it."}
    </p>
    <label
      >Format
      <select name="format">
        <option value="CANONICAL">canonical: one form for every state backend</option>
        <option value="NATIVE">native: the state backend’s own files, faster</option>
      </select>
    </label>`;
}

function Savepoint({ job, directory, onClose }) {
  const go = (values) => operations.takeSavepoint(job.jid, values);
  return html`<${Question} title="Take a savepoint" submit="Take savepoint" onSubmit=${go} onClose=${onClose}>
    <p>A self-contained copy of the state, which never expires. The job goes on.</p>
    <${Target} directory=${directory} />
  <//>`;
}

function Stop({ job, directory, onClose }) {
  const go = (values) => operations.stopWithSavepoint(job.jid, { ...values, drain: values.drain === "on" });
  return html`<${Question}
    title="Stop the job with a savepoint"
    submit="Stop the job"
    isGrave=${true}
    onSubmit=${go}
    onClose=${onClose}
  >
    <p>The job reads no more records, writes a savepoint, publishes its output and ends. If the savepoint fails, the job continues.</p>
    <${Target} directory=${directory} />
    <label class="check">
      <input type="checkbox" name="drain" /> Drain: end event time first, so that every timer and window fires. Such a
      job should not be resumed.
    </label>
  <//>`;
}

function Rescale({ job, onClose }) {
  const now = job.parallelism ?? Math.max(1, ...(job.vertices ?? []).map((vertex) => vertex.parallelism));
  const limit = job.maxParallelism > 0 ? job.maxParallelism : undefined;
  const go = (values) => operations.rescale(job.jid, Number(values.parallelism));
  return html`<${Question} title="Rescale the job" submit="Rescale" onSubmit=${go} onClose=${onClose}>
    <p>The job takes a checkpoint and continues with another number of slots: no record is lost or repeated.</p>
    <label
      >Parallelism
      <input name="parallelism" type="number" min="1" max=${limit} step="1" value=${now} required inputmode="numeric" />
    </label>
    <p class="muted">Now ${now}${limit ? `; at most ${limit}, the job’s max parallelism` : ""}.</p>
  <//>`;
}

function Cancel({ job, onClose }) {
  return html`<${Question}
    title="Cancel the job?"
    submit="Cancel the job"
    isGrave=${true}
    onSubmit=${() => operations.cancel(job.jid)}
    onClose=${onClose}
  >
    <p>
      <strong>${job.name}</strong> ends without a savepoint. Whether its checkpoints stay is up to its retention setting;
      output after the last checkpoint is not published.
    </p>
  <//>`;
}

/** What was asked for: how it goes, how it ended. */
export function Operations({ jobId, progress }) {
  const shown = operations.useOperations(jobId);
  return html`<div class="operations" role="status" aria-live="polite" aria-label="Results">
    ${progress && html`<p class="notice calm"><span class="spinner" aria-hidden="true"></span> ${progress}</p>`}
    ${shown.map(
      (operation) =>
        html`<div key=${operation.id} class="notice ${{ running: "calm", done: "good", failed: "bad" }[operation.state]}">
          ${operation.state === "running" && html`<span class="spinner" aria-hidden="true"></span>`}
          <span class="words">${operation.words}</span>
          ${operation.details && html`<details><summary>Full answer of the server</summary><pre>${operation.details}</pre></details>`}
          ${operation.state !== "running" &&
          html`<button type="button" class="small plain" onClick=${() => operations.dismiss(operation)}>
            Dismiss<span class="hidden">: ${operation.title}</span>
          </button>`}
        </div>`,
    )}
  </div>`;
}
