// Charts of any metric of any operator: the reader chooses them, and they stay.

import { address, query } from "./api.js";
import * as format from "./format.js";
import { html, useState } from "./html.js";
import { useLive } from "./live.js";
import { Plot } from "./plots.js";

const MOST = 12; // charts
const LONG_PAUSE = 60_000;
const HOW = [
  ["sum", "sum of subtasks"],
  ["avg", "average of subtasks"],
  ["max", "largest subtask"],
  ["min", "smallest subtask"],
];

/** What was chosen for a job, as [{ vertex, metric, agg }]; kept by the browser until its window is closed. */
function useChosen(jobId) {
  const key = `checkdam.charts.${jobId}`;
  const [chosen, setChosen] = useState(() => kept(key));
  const choose = (next) => {
    setChosen(next);
    try {
      sessionStorage.setItem(key, JSON.stringify(next));
    } catch {
      // Without room or permission they last as long as the page.
    }
  };
  return [chosen, choose];
}

function kept(key) {
  try {
    const found = JSON.parse(sessionStorage.getItem(key) ?? "[]");
    const isChart = (each) => typeof each?.vertex === "string" && typeof each.metric === "string" && HOW.some(([agg]) => agg === each.agg);
    return Array.isArray(found) ? found.filter(isChart).slice(0, MOST) : [];
  } catch {
    return [];
  }
}

export function MetricCharts({ job, jobId, isEnded }) {
  const [charts, choose] = useChosen(jobId);
  const isSame = (one, other) => one.vertex === other.vertex && one.metric === other.metric && one.agg === other.agg;
  const add = (chart) => !charts.some((each) => isSame(each, chart)) && choose([...charts, chart]);
  const known = charts.filter((chart) => job.vertices.some(({ id }) => id === chart.vertex));
  return html`<section aria-labelledby="metrics-head">
    <h2 id="metrics-head">Metrics of an operator</h2>
    <${Choice} vertices=${job.vertices} jobId=${jobId} isEnded=${isEnded} isFull=${charts.length >= MOST} onAdd=${add} />
    ${known.length > 0 &&
    html`<div class="plots">
      ${known.map(
        (chart) =>
          html`<${Chart}
            key=${`${chart.vertex} ${chart.metric} ${chart.agg}`}
            chart=${chart}
            vertex=${job.vertices.find(({ id }) => id === chart.vertex)}
            jobId=${jobId}
            isEnded=${isEnded}
            onRemove=${() => choose(charts.filter((each) => !isSame(each, chart)))}
          />`,
      )}
    </div>`}
  </section>`;
}

function Choice({ vertices, jobId, isEnded, isFull, onAdd }) {
  const [vertex, setVertex] = useState(vertices[0].id);
  const [wanted, setMetric] = useState(null);
  const [agg, setAgg] = useState("sum");
  const { data } = useLive(address("jobs", jobId, "vertices", vertex, "subtasks", "metrics"), isEnded ? Infinity : 5);
  const names = Array.isArray(data) ? data.map(({ id }) => id).sort((one, other) => rank(one) - rank(other) || one.localeCompare(other)) : [];
  const metric = names.includes(wanted) ? wanted : names[0];
  const submit = (event) => {
    event.preventDefault();
    if (metric) onAdd({ vertex, metric, agg });
  };
  return html`<form class="bar metric-choice" onSubmit=${submit}>
    <label>
      Operator${" "}
      <select value=${vertex} onChange=${(event) => setVertex(event.currentTarget.value)}>
        ${vertices.map((each) => html`<option key=${each.id} value=${each.id}>${format.operatorTitle(each)}</option>`)}
      </select>
    </label>
    <label>
      Metric${" "}
      <select value=${metric} disabled=${!names.length} onChange=${(event) => setMetric(event.currentTarget.value)}>
        ${names.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}
      </select>
    </label>
    <label>
      Shown${" "}
      <select value=${agg} onChange=${(event) => setAgg(event.currentTarget.value)}>
        ${HOW.map(([each, words]) => html`<option key=${each} value=${each}>${words}</option>`)}
      </select>
    </label>
    <button type="submit" disabled=${!metric || isFull} title=${isFull ? `${MOST} charts at most` : null}>Add chart</button>
  </form>`;
}

/** Metrics of the user's function come first, then those of the operator, then those of the task. */
function rank(name) {
  if (!name.includes(".")) return 2;
  return OF_EVERY_OPERATOR.has(name.slice(name.lastIndexOf(".") + 1)) ? 1 : 0;
}

const OF_EVERY_OPERATOR = new Set([
  "numRecordsIn",
  "numRecordsInPerSecond",
  "numRecordsOut",
  "numRecordsOutPerSecond",
  "currentInputWatermark",
  "currentOutputWatermark",
  "watermarkLag",
  "numLateRecordsDropped",
  "sourceIdleTime",
  "pendingRecords",
]);

function Chart({ chart, vertex, jobId, isEnded, onRemove }) {
  const path = address("jobs", jobId, "vertices", chart.vertex, "metrics", "history") + query({ get: chart.metric, agg: chart.agg });
  const { data, error } = useLive(path, isEnded ? Infinity : 2);
  const points = pointsOf(data?.at ?? [], data?.metrics?.[0]?.values ?? []);
  const words = HOW.find(([agg]) => agg === chart.agg)[1];
  const title = `${format.operatorTitle(vertex)}: ${chart.metric} (${words})`;
  const empty = error ? error.words : data ? "no values yet" : "Loading…";
  return html`<div class="metric-chart">
    <${Plot} title=${title} points=${points} show=${formOf(chart.metric)} empty=${empty} />
    <button type="button" class="quiet" aria-label=${`Remove the chart of ${title}`} onClick=${onRemove}>Remove</button>
  </div>`;
}

/** [[milliseconds, value]]; where nothing came for long, a null breaks the line. */
function pointsOf(times, values) {
  const points = [];
  values.forEach((value, at) => {
    if (value === null) return;
    const before = points.at(-1)?.[0] ?? times[at];
    if (times[at] - before > LONG_PAUSE) points.push([(times[at] + before) / 2, null]);
    points.push([times[at], value]);
  });
  return points;
}

/** How the values of a metric are written: most names tell their unit. */
function formOf(metric) {
  const name = metric.slice(metric.lastIndexOf(".") + 1);
  if (name.endsWith("Watermark")) return (value) => format.watermark(value);
  if (["watermarkLag", "sourceIdleTime", "accumulateBusyTimeMs"].includes(name)) return format.duration;
  if (name.endsWith("TimeMsPerSecond")) return (value) => format.percent(value / 1000);
  if (/^numBytes(In|Out)$/.test(name)) return format.bytes;
  if (/^numBytes.*PerSecond$/.test(name)) return (value) => `${format.bytes(value)}/s`;
  if (name.endsWith("PerSecond")) return (value) => `${format.short(value)}/s`;
  return format.short;
}
