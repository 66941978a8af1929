// The job's graph, its operators as a table, and plots over time.

import { address } from "../api.js";
import * as format from "../format.js";
import { Graph, busyClass } from "../graph.js";
import { HealthStrip, lag } from "../health.js";
import { html, useEffect, useMemo, useState } from "../html.js";
import { useLive } from "../live.js";
import { MetricCharts } from "../metrics.js";
import { OF_TIME, Plot, TimeAxis } from "../plots.js";
import { link } from "../router.js";
import { pointsOf, useSeries } from "../series.js";
import { Badge, Table, end, useReady } from "../widgets.js";

const ALL_COLUMNS = 11;

export function Overview({ job, jobId, rest, isEnded }) {
  const [chosen] = rest;
  useEffect(() => {
    if (chosen) document.getElementById(`vertex-${chosen}`)?.scrollIntoView({ block: "nearest" });
  }, [chosen]);
  const hrefOf = (vertex) => link("jobs", jobId, "overview", vertex.id);
  return html`<${HealthStrip} job=${job} jobId=${jobId} />
    <section aria-labelledby="graph-head">
      <h2 id="graph-head">Graph</h2>
      ${job.vertices.length
        ? html`<${Graph} job=${job} chosen=${chosen} hrefOf=${hrefOf} />`
        : html`<p class="muted">The operators of this job are not known.</p>`}
    </section>
    ${job.vertices.length > 0 && html`<${Operators} job=${job} jobId=${jobId} chosen=${chosen} isEnded=${isEnded} />`}
    <${Plots} job=${job} jobId=${jobId} isEnded=${isEnded} />
    ${job.vertices.length > 0 && html`<${MetricCharts} job=${job} jobId=${jobId} isEnded=${isEnded} />`}
    <${Rescales} jobId=${jobId} isEnded=${isEnded} />`;
}

function Operators({ job, jobId, chosen, isEnded }) {
  const [open, setOpen] = useState(() => new Set());
  useEffect(() => {
    if (chosen) setOpen((known) => new Set([...known, chosen]));
  }, [chosen]);
  const toggle = (id) =>
    setOpen((known) => {
      const next = new Set(known);
      if (!next.delete(id)) next.add(id);
      return next;
    });
  const head = [
    "Operator",
    "Status",
    end("Parallelism"),
    end("Records in"),
    end("Records out"),
    end("Bytes in"),
    end("Busy"),
    "Watermark",
    end("Keys"),
    end("Entries"),
    end("State size"),
  ];
  return html`<section aria-labelledby="operators">
    <h2 id="operators">Operators</h2>
    <${Table} label="Operators" head=${head}>
      ${job.vertices.map((vertex) => {
        const isOpen = open.has(vertex.id);
        return [
          html`<${OperatorRow}
            key=${vertex.id}
            vertex=${vertex}
            isOpen=${isOpen}
            isChosen=${vertex.id === chosen}
            onToggle=${() => toggle(vertex.id)}
          />`,
          isOpen &&
          html`<tr key=${`${vertex.id}-subtasks`} id=${`subtasks-${vertex.id}`} class="unfolded">
            <td colspan=${ALL_COLUMNS}><${Subtasks} jobId=${jobId} vertex=${vertex} isEnded=${isEnded} /></td>
          </tr>`,
        ];
      })}
    <//>
  </section>`;
}

function OperatorRow({ vertex, isOpen, isChosen, onToggle }) {
  const metrics = vertex.metrics ?? {};
  const hasState = vertex["is-stateful"];
  return html`<tr id=${`vertex-${vertex.id}`} class=${isChosen ? "chosen" : ""}>
    <th scope="row">
      <button
        type="button"
        class="fold"
        aria-expanded=${isOpen}
        aria-controls=${isOpen ? `subtasks-${vertex.id}` : null}
        onClick=${onToggle}
      >
        ${format.operatorTitle(vertex)}
      </button>
      ${vertex.uid && html`<span class="muted small"> ${vertex["is-named"] ? `uid ${vertex.uid}` : vertex.name}</span>`}
    </th>
    <td><${Badge} status=${vertex.status} /></td>
    <td class="end">${vertex.parallelism}</td>
    <td class="end">${format.number(metrics["read-records"])}</td>
    <td class="end">${format.number(metrics["write-records"])}</td>
    <td class="end">${format.bytes(metrics["read-bytes"])}</td>
    <td class="end"><span class="busy-text ${busyClass(vertex["busy-ratio"])}">${format.percent(vertex["busy-ratio"])}</span></td>
    <td>
      ${format.watermark(vertex.watermark)}
      ${lag(vertex["watermark-lag"]) && html`<span class="muted small"> ${lag(vertex["watermark-lag"])}</span>`}
    </td>
    <td class="end">${hasState ? format.held(vertex.keys, vertex["entries-are-exact"]) : "-"}</td>
    <td class="end">${hasState ? format.held(vertex.entries, vertex["entries-are-exact"]) : "-"}</td>
    <td class="end">${hasState ? format.bytes(vertex["state-size"]) : "-"}</td>
  </tr>`;
}

function Subtasks({ jobId, vertex, isEnded }) {
  const times = isEnded ? Infinity : 1;
  const at = (...more) => address("jobs", jobId, "vertices", vertex.id, ...more);
  const { data, error } = useLive(at(), times);
  const pressure = useLive(at("backpressure"), times).data;
  const watermarks = useLive(at("watermarks"), times).data;
  if (!data) return html`<p class="muted">${error ? error.words : "Loading…"}</p>`;
  const busyOf = (index) => pressure?.subtasks?.find((each) => each.subtask === index)?.busyRatio;
  const watermarkOf = (index) =>
    Array.isArray(watermarks) ? watermarks.find((each) => each.id === `${index}.currentInputWatermark`)?.value : null;
  const head = ["Subtask", "Status", "Where", end("Records in"), end("Records out"), end("Bytes in"), end("Busy"), "Watermark"];
  return html`<${Table} label=${`Subtasks of ${format.operatorTitle(vertex)}`} head=${head}>
    ${data.subtasks.map(
      (subtask) =>
        html`<tr key=${subtask.subtask}>
          <th scope="row">${subtask.subtask}</th>
          <td><${Badge} status=${subtask.status} /></td>
          <td>${vertex.level === 0 ? "Spark" : isEnded ? "-" : format.slot(subtask.subtask, subtask.endpoint)}</td>
          <td class="end">${format.number(subtask.metrics?.["read-records"])}</td>
          <td class="end">${format.number(subtask.metrics?.["write-records"])}</td>
          <td class="end">${format.bytes(subtask.metrics?.["read-bytes"])}</td>
          <td class="end">
            <span class="busy-text ${busyClass(busyOf(subtask.subtask))}">${format.percent(busyOf(subtask.subtask))}</span>
          </td>
          <td>${format.watermark(watermarkOf(subtask.subtask))}</td>
        </tr>`,
    )}
  <//>`;
}

function Plots({ job, jobId, isEnded }) {
  const series = useSeries(jobId, isEnded ? "ended" : job.now, isEnded);
  useReady(series !== null);
  const isExact = job["entries-are-exact"];
  const plots = useMemo(() => (series ? plotsOf(series, isExact) : []), [series, isExact]);
  return html`<section aria-labelledby="plots">
    <h2 id="plots">Over time</h2>
    ${series
      ? html`<${TimeAxis} />
          <div class="plots">${plots.map((plot) => html`<${Plot} key=${plot.title} ...${plot} />`)}</div>`
      : html`<p class="waiting">Loading…</p>`}
  </section>`;
}

function plotsOf(series, isExact) {
  const held = (value) => `${isExact === false ? "≈ " : ""}${format.short(value)}`;
  const of = (name) => pointsOf(series, name);
  const broken = (name) => pointsOf(series, name, { breaks: true });
  const noEpoch = "no epoch has ended yet";
  const noCheckpoint = "no checkpoint is complete yet";
  const perSecond = (value) => `${format.short(value)}/s`;
  return [
    { title: "Records a second", points: broken("records_per_second"), show: perSecond, empty: noEpoch },
    { title: "Epoch duration", points: broken("epoch_duration"), most: broken("epoch_duration_max"), show: format.duration, steps: OF_TIME, empty: noEpoch },
    { title: "Checkpoint duration", points: of("checkpoint_duration"), most: of("checkpoint_duration_max"), show: format.duration, steps: OF_TIME, empty: noCheckpoint },
    { title: "Checkpoint size", points: of("checkpoint_size"), show: format.bytes, empty: noCheckpoint },
    { title: "State size", points: of("state_size"), show: format.bytes, empty: noCheckpoint },
    { title: "Entries held", points: broken("entries"), show: held, empty: noEpoch },
  ];
}

function Rescales({ jobId, isEnded }) {
  const { data } = useLive(address("jobs", jobId, "rescales", "history"), isEnded ? Infinity : 3);
  if (!Array.isArray(data) || !data.length) return null;
  const widest = (rescale, field) => Math.max(0, ...Object.values(rescale.vertices ?? {}).map((each) => each[field] ?? 0));
  const head = ["Started", end("From"), end("To"), end("Duration"), "Result"];
  return html`<section aria-labelledby="rescales">
    <h2 id="rescales">Rescales</h2>
    <${Table} label="Rescales" head=${head}>
      ${data.map(
        (rescale) =>
          html`<tr key=${rescale.rescaleUuid}>
            <th scope="row">${format.date(rescale.startTimestampInMillis)}</th>
            <td class="end">${format.number(widest(rescale, "preRescaleParallelism"))}</td>
            <td class="end">${format.number(widest(rescale, "desiredParallelism"))}</td>
            <td class="end">${format.duration(rescale.endTimestampInMillis - rescale.startTimestampInMillis)}</td>
            <td>
              <${Badge} status=${rescale.terminalState ?? "IN_PROGRESS"} />
              ${rescale.schedulerStates?.map((state) => state.stringifiedException).filter(Boolean).join("\n")}
            </td>
          </tr>`,
      )}
    <//>
  </section>`;
}
