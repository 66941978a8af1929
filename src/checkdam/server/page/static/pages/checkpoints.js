// Checkpoints of a job: overview, history, summary, configuration; one of them in detail.

import { address } from "../api.js";
import * as format from "../format.js";
import { html, useState } from "../html.js";
import { useLive } from "../live.js";
import { link } from "../router.js";
import { Badge, Copied, Facts, Table, Tabs, ErrorNotice, Waiting, end, useReady } from "../widgets.js";
import { Checkpoint } from "./checkpoint.js";

const NONE = "n/a";
const NO_INTERVAL = 9_000_000_000_000_000; // Flink's largest long, as a double
const PAGE = 25;

const VIEWS = { overview: ["Overview", Latest], history: ["History", History], summary: ["Summary", Summary], configuration: ["Configuration", Settings] };

export function Checkpoints({ jobId, rest, isEnded }) {
  const [view = "overview"] = rest;
  const isOne = /^\d+$/.test(view);
  const { data, error } = useLive(address("jobs", jobId, "checkpoints"), isEnded ? 10 : 1);
  useReady(data !== undefined && !isOne);
  const tabs = Object.entries(VIEWS).map(([id, [words]]) => [id, words, link("jobs", jobId, "checkpoints", id)]);
  const [, View] = VIEWS[view] ?? VIEWS.overview;
  return html`<h2>Checkpoints</h2>
    <${Tabs} label="Views of the checkpoints" tabs=${isOne ? [...tabs, [view, `Checkpoint ${view}`, link("jobs", jobId, "checkpoints", view)]] : tabs} current=${view} />
    ${isOne
      ? html`<${Checkpoint} key=${view} jobId=${jobId} id=${view} />`
      : data
        ? html`<${View} data=${data} jobId=${jobId} isEnded=${isEnded} />`
        : html`<${Waiting} error=${error} what="The checkpoints cannot be shown." />`}`;
}

function Latest({ data, jobId }) {
  const { counts, latest } = data;
  const one = (checkpoint) => html`<a href=${link("jobs", jobId, "checkpoints", checkpoint.id)}>${checkpoint.id}</a>`;
  const sizes = (checkpoint) => [
    ["Checkpointed data size", format.bytes(checkpoint.checkpointed_size, NONE)],
    ["Full data size", format.bytes(checkpoint.state_size, NONE)],
  ];
  return html`<${Facts}
      facts=${[
        ["Triggered", format.number(counts.total)],
        ["In progress", format.number(counts.in_progress)],
        ["Completed", format.number(counts.completed)],
        ["Failed", format.number(counts.failed)],
        ["Restored", format.number(counts.restored)],
      ]}
    />
    <div class="cards">
      <${Card} title="Latest completed checkpoint" of=${latest.completed}>
        ${(checkpoint) => [
          ["Id", one(checkpoint)],
          ["Completed", format.date(checkpoint.latest_ack_timestamp, NONE)],
          ["End to end", format.duration(checkpoint.end_to_end_duration, NONE)],
          ...sizes(checkpoint),
          ["Path", checkpoint.external_path && html`<${Copied} text=${checkpoint.external_path} />`],
        ]}
      <//>
      <${Card} title="Latest savepoint" of=${latest.savepoint}>
        ${(checkpoint) => [
          ["Id", one(checkpoint)],
          ["Completed", format.date(checkpoint.latest_ack_timestamp, NONE)],
          ["End to end", format.duration(checkpoint.end_to_end_duration, NONE)],
          ...sizes(checkpoint),
          ["Format", String(checkpoint.savepointFormat ?? NONE).toLowerCase()],
          ["Path", checkpoint.external_path && html`<${Copied} text=${checkpoint.external_path} />`],
        ]}
      <//>
      <${Card} title="Latest failed" of=${latest.failed}>
        ${(checkpoint) => [
          ["Id", one(checkpoint)],
          ["Failed", format.date(checkpoint.failure_timestamp, NONE)],
          ["Cause", html`<span class="words">${checkpoint.failure_message ?? NONE}</span>`],
        ]}
      <//>
      <${Card} title="Latest restore" of=${latest.restored}>
        ${(restore) => [
          ["Id", restore.id],
          ["Restored", format.date(restore.restore_timestamp, NONE)],
          ["From", restore.is_savepoint ? "savepoint" : "checkpoint"],
          ["Path", restore.external_path && html`<${Copied} text=${restore.external_path} />`],
        ]}
      <//>
    </div>`;
}

function Card({ title, of, children }) {
  return html`<section class="card">
    <h3>${title}</h3>
    ${of ? html`<${Facts} facts=${children(of)} />` : html`<p class="muted">None</p>`}
  </section>`;
}

const FILTERS = {
  all: ["All", () => true],
  checkpoints: ["Checkpoints", (each) => !each.is_savepoint],
  savepoints: ["Savepoints", (each) => each.is_savepoint],
  failed: ["Failed", (each) => each.status === "FAILED"],
};

function History({ data, jobId }) {
  const [shown, setShown] = useState(PAGE);
  const [filter, setFilter] = useState("all");
  const found = data.history.filter(FILTERS[filter][1]);
  const head = ["Id", "Status", "Acknowledged", "Triggered", "Latest acknowledgement", end("End to end"), end("Checkpointed"), end("Full size")];
  return html`<p class="bar">
      <label
        >Show
        <select value=${filter} onChange=${(event) => setFilter(event.currentTarget.value)}>
          ${Object.entries(FILTERS).map(([id, [words]]) => html`<option value=${id}>${words}</option>`)}
        </select>
      </label>
      <span class="muted">${format.number(Math.min(shown, found.length))} of ${format.number(found.length)}, the newest first</span>
    </p>
    ${found.length === 0
      ? html`<p class="muted">None.</p>`
      : html`<${Table} label="History of checkpoints" head=${head} isStacked=${true}>
          ${found.slice(0, shown).map((each) => html`<${HistoryRow} key=${each.id} checkpoint=${each} jobId=${jobId} />`)}
        <//>`}
    ${found.length > shown &&
    html`<p class="bar">
      <button type="button" onClick=${() => setShown(shown + PAGE)}>Show ${Math.min(PAGE, found.length - shown)} more</button>
    </p>`}`;
}

function HistoryRow({ checkpoint, jobId }) {
  const { num_acknowledged_subtasks: acknowledged, num_subtasks: all } = checkpoint;
  const share = checkpoint.status === "IN_PROGRESS" && all ? ` (${Math.round((100 * acknowledged) / all)}%)` : "";
  return html`<tr>
    <th scope="row" data-label="Id"><a href=${link("jobs", jobId, "checkpoints", checkpoint.id)}>${checkpoint.id}</a></th>
    <td data-label="Status"><${Badge} status=${checkpoint.status} />${checkpoint.is_savepoint ? " savepoint" : ""}</td>
    <td data-label="Acknowledged">${acknowledged}/${all}${share}</td>
    <td data-label="Triggered">${format.date(checkpoint.trigger_timestamp, NONE)}</td>
    <td data-label="Latest acknowledgement">${format.date(checkpoint.latest_ack_timestamp, NONE)}</td>
    <td data-label="End to end" class="end">${format.duration(checkpoint.end_to_end_duration, NONE)}</td>
    <td data-label="Checkpointed" class="end">${format.bytes(checkpoint.checkpointed_size, NONE)}</td>
    <td data-label="Full size" class="end">${format.bytes(checkpoint.state_size, NONE)}</td>
  </tr>`;
}

const QUANTILES = [
  ["min", "Minimum"],
  ["avg", "Average"],
  ["max", "Maximum"],
  ["p50", "50%"],
  ["p90", "90%"],
  ["p95", "95%"],
  ["p99", "99%"],
  ["p999", "99.9%"],
];

function Summary({ data }) {
  const rows = [
    ["End to end duration", "end_to_end_duration", format.duration],
    ["Checkpointed data size", "checkpointed_size", format.bytes],
    ["Full data size", "state_size", format.bytes],
  ];
  if (!data.counts.completed) return html`<p class="muted">No checkpoint is complete yet.</p>`;
  return html`<p class="muted">Over the completed checkpoints in the history.</p>
    <${Table} label="Summary of completed checkpoints" head=${["", ...QUANTILES.map(([, words]) => end(words))]}>
      ${rows.map(
        ([words, field, show]) =>
          html`<tr key=${field}>
            <th scope="row">${words}</th>
            ${QUANTILES.map(([id]) => html`<td key=${id} class="end">${show(data.summary[field]?.[id], NONE)}</td>`)}
          </tr>`,
      )}
    <//>
    <p class="muted">Nothing is in flight when a barrier passes, so there is no in-flight data to process or persist.</p>`;
}

function Settings({ jobId }) {
  const { data, error } = useLive(address("jobs", jobId, "checkpoints", "config"), Infinity);
  if (error) return html`<${ErrorNotice} error=${error} />`;
  if (!data) return html`<${Waiting} />`;
  const kept = data.externalization;
  const yes = (value) => (value ? "on" : "off");
  const from = (field, value) =>
    data.origins?.[field] ? html`${value} <span class="muted">(${data.origins[field]})</span>` : value;
  return html`<${Facts}
    facts=${[
      ["Mode", from("mode", data.mode === "exactly_once" ? "Exactly once" : "At least once")],
      ["Interval", from("interval", data.interval > NO_INTERVAL || data.interval < 0 ? "no periodic checkpoints" : format.duration(data.interval))],
      ["Timeout", from("timeout", format.duration(data.timeout))],
      ["Minimum pause", from("min_pause", format.duration(data.min_pause))],
      ["Most in progress", from("max_concurrent", data.max_concurrent)],
      ["State backend", from("state_backend", data.state_backend)],
      ["Storage", data.checkpoint_storage],
      data.directory && ["Directory", from("directory", html`<code>${data.directory}</code>`)],
      ["Retention", from("externalization", kept?.enabled ? (kept.delete_on_cancellation ? "deleted on cancellation" : "retained on cancellation") : "not kept")],
      data.num_retained && ["Retained checkpoints", from("num_retained", data.num_retained)],
      ["Failures tolerated", from("tolerable_failed_checkpoints", data.tolerable_failed_checkpoints)],
      ["Unaligned checkpoints", yes(data.unaligned_checkpoints)],
      ["With finished tasks", yes(data.checkpoints_after_tasks_finish)],
      ["State changelog", yes(data.state_changelog_enabled)],
    ]}
  />`;
}
