// One checkpoint: what every operator and subtask took and wrote, and a picture of which slot was slow.

import { address, ask, Refused, Unreachable } from "../api.js";
import * as format from "../format.js";
import { html, useEffect, useState } from "../html.js";
import { useLive } from "../live.js";
import { link } from "../router.js";
import { Timeline } from "../timeline.js";
import { Badge, Copied, Facts, Table, Waiting, end, useReady } from "../widgets.js";
import { nameOf } from "./savepoints.js";

const NONE = "n/a";

const typeOf = (checkpoint) =>
  ({
    CHECKPOINT: "aligned checkpoint",
    UNALIGNED_CHECKPOINT: "unaligned checkpoint",
    SAVEPOINT: "savepoint",
    SYNC_SAVEPOINT: "savepoint the job stopped with",
  })[checkpoint.checkpoint_type] ?? String(checkpoint.checkpoint_type).toLowerCase();

export function Checkpoint({ jobId, id }) {
  const [isDone, setDone] = useState(false);
  const path = address("jobs", jobId, "checkpoints", "details", id);
  const { data, error } = useLive(path, isDone ? 10 : 1);
  const job = useLive(address("jobs", jobId), Infinity).data;
  const isComplete = data !== undefined && data.status !== "IN_PROGRESS";
  useEffect(() => setDone(isComplete), [isComplete]);
  const parts = useParts(path, data);
  useReady(data !== undefined && parts !== null);
  if (!data) return html`<${Waiting} error=${error} what=${`Checkpoint ${id} cannot be shown.`} />`;
  const names = new Map((job?.vertices ?? []).map((vertex) => [vertex.id, vertex.name]));
  const nameOfVertex = (vertex) => names.get(vertex) ?? vertex;
  const isKept = data.external_path && !data.discarded;
  return html`<h3>
      ${data.is_savepoint ? "Savepoint" : "Checkpoint"} ${data.id} <${Badge} status=${data.status} />
    </h3>
    <${Facts}
      facts=${[
        ["Kind", typeOf(data)],
        data.savepointFormat && ["Format", data.savepointFormat.toLowerCase()],
        ["Triggered", format.date(data.trigger_timestamp, NONE)],
        ["Latest acknowledgement", format.date(data.latest_ack_timestamp, NONE)],
        ["End to end", format.duration(data.end_to_end_duration, NONE)],
        ["Acknowledged", `${data.num_acknowledged_subtasks}/${data.num_subtasks} subtasks`],
        ["Checkpointed data size", format.bytes(data.checkpointed_size, NONE)],
        ["Full data size", format.bytes(data.state_size, NONE)],
        data.external_path && ["Path", html`<${Copied} text=${data.external_path} />`],
        data.discarded && ["Discarded", "deleted by retention"],
        data.failure_message && ["Failure", html`<span class="words">${data.failure_message}</span>`],
      ]}
    />
    ${isKept &&
    html`<p>
      <a href=${link("jobs", jobId, "state", nameOf(data.external_path))}>Show its state</a> or
      ${" "}<a href=${link("jobs", jobId, "state", "compare", nameOf(data.external_path))}>compare it with another</a>.
    </p>`}
    ${parts && html`<${Timeline} checkpoint=${data} parts=${parts} nameOf=${nameOfVertex} />`}
    ${parts && html`<${Operators} data=${data} parts=${parts} nameOf=${nameOfVertex} />`}`;
}

/** The subtasks of every vertex of a checkpoint, by vertex; asked for again when one more has acknowledged. */
function useParts(path, data) {
  const [parts, setParts] = useState(null);
  const vertices = Object.keys(data?.tasks ?? {});
  const version = data ? `${path} ${data.status} ${data.num_acknowledged_subtasks}` : null;
  useEffect(() => {
    if (version === null) return undefined;
    let isLeft = false;
    Promise.all(vertices.map((vertex) => ask(`${path}/subtasks/${encodeURIComponent(vertex)}`)))
      .then((answers) => {
        if (!isLeft) setParts(new Map(vertices.map((vertex, at) => [vertex, answers[at]])));
      })
      .catch((failure) => {
        if (!(failure instanceof Unreachable || failure instanceof Refused)) throw failure;
        if (!isLeft && parts === null) setParts(new Map());
      });
    return () => {
      isLeft = true;
    };
  }, [version]);
  return parts;
}

function Operators({ data, parts, nameOf: nameOfVertex }) {
  const rows = Object.entries(data.tasks ?? {});
  if (!rows.length) return html`<p class="muted">The operators of this checkpoint are not known.</p>`;
  return html`<section aria-labelledby="per-operator">
    <h3 id="per-operator">Operators and their subtasks</h3>
    <p class="muted">
      Alignment is 0 for every subtask: a barrier falls between two epochs, when no record is under way, so no input ever
      waits for another.
    </p>
    ${rows.map(
      ([vertex, task]) =>
        html`<details key=${vertex} class="operator" open=${task.state_size > 0}>
          <summary>
            <strong>${nameOfVertex(vertex)}</strong>
            <span class="muted">
              ${" "}${task.num_acknowledged_subtasks}/${task.num_subtasks} acknowledged, end to end
              ${" "}${format.duration(task.end_to_end_duration, NONE)}, ${format.bytes(task.checkpointed_size, NONE)} written
              of ${format.bytes(task.state_size, NONE)}
            </span>
          </summary>
          <${Subtasks} name=${nameOfVertex(vertex)} part=${parts.get(vertex)} />
        </details>`,
    )}
  </section>`;
}

function Subtasks({ name, part }) {
  if (!part) return html`<p class="muted">Its subtasks are not known any more.</p>`;
  const head = ["Subtask", "Acknowledged", end("End to end"), end("Sync"), end("Async"), end("Alignment"), end("Start delay"), end("Checkpointed"), end("Full size")];
  return html`<${Table} label=${`Subtasks of ${name}`} head=${head}>
    ${part.subtasks.map((subtask) =>
      subtask.className === "completed"
        ? html`<tr key=${subtask.index}>
            <th scope="row">${subtask.index}</th>
            <td>${format.date(subtask.ack_timestamp, NONE)}</td>
            <td class="end">${format.duration(subtask.end_to_end_duration, NONE)}</td>
            <td class="end">${format.duration(subtask.checkpoint?.sync, NONE)}</td>
            <td class="end">${format.duration(subtask.checkpoint?.async, NONE)}</td>
            <td class="end" title="A barrier falls between two epochs: nothing waits">${format.duration(subtask.alignment?.duration ?? 0, NONE)}</td>
            <td class="end">${format.duration(subtask.start_delay, NONE)}</td>
            <td class="end">${format.bytes(subtask.checkpointed_size, NONE)}</td>
            <td class="end">${format.bytes(subtask.state_size, NONE)}</td>
          </tr>`
        : html`<tr key=${subtask.index}>
            <th scope="row">${subtask.index}</th>
            <td colspan="8" class="muted">not acknowledged</td>
          </tr>`,
    )}
    ${part.summary && html`<${Averages} summary=${part.summary} />`}
  <//>`;
}

function Averages({ summary }) {
  const of = (stats, show) => html`<td class="end">${show(stats?.avg, NONE)}</td>`;
  return html`<tr class="sum">
    <th scope="row">average</th>
    <td></td>
    ${of(summary.end_to_end_duration, format.duration)} ${of(summary.checkpoint_duration?.sync, format.duration)}
    ${of(summary.checkpoint_duration?.async, format.duration)} ${of(summary.alignment?.duration, format.duration)}
    ${of(summary.start_delay, format.duration)} ${of(summary.checkpointed_size, format.bytes)}
    ${of(summary.state_size, format.bytes)}
  </tr>`;
}
