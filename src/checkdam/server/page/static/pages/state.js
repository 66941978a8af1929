// State: live, or as a retained checkpoint or savepoint holds it. Keyed state by key, page by page, or by key group;
// broadcast state, lists of operators, and timers page by page.

import { address } from "../api.js";
import { Compare } from "./compare.js";
import * as format from "../format.js";
import { HeatMap } from "../heatmap.js";
import { html } from "../html.js";
import { useLive } from "../live.js";
import { goTo, link } from "../router.js";
import { Table, Tabs, Value, Waiting, end, useReady } from "../widgets.js";
import { Entries } from "./entries.js";
import { Lookup } from "./lookup.js";

export const LIVE = "live";
const COMPARE = "compare";

export function State({ jobId, rest, job, isEnded }) {
  const listed = useLive(address("jobs", jobId, "snapshots"), isEnded ? 10 : 2).data;
  const snapshots = listed?.snapshots ?? [];
  const [asked, uid, name, kind] = rest;
  const source = asked ?? (isEnded ? snapshots[0]?.ref : LIVE);
  const tabs = [
    ["inside", "Look inside", link("jobs", jobId, "state")],
    [COMPARE, "Compare two", link("jobs", jobId, "state", COMPARE)],
  ];
  return html`<h2>State</h2>
    <${Tabs} label="Of the state" tabs=${tabs} current=${source === COMPARE ? COMPARE : "inside"} />
    ${source === COMPARE
      ? html`<${Compare} jobId=${jobId} snapshots=${snapshots} isKnown=${listed !== undefined} rest=${rest.slice(1)} />`
      : html`<${Source} jobId=${jobId} source=${source} snapshots=${snapshots} isEnded=${isEnded} />
          ${source
            ? html`<${Inside} key=${source} job=${job} jobId=${jobId} source=${source} uid=${uid} name=${name} kind=${kind in KINDS ? kind : KEYED} snapshots=${snapshots} />`
            : html`<p class="muted">${listed ? "This job has no readable checkpoint or savepoint." : "Loading…"}</p>`}`}`;
}

function Source({ jobId, source, snapshots, isEnded }) {
  const isListed = source === LIVE || snapshots.some((each) => each.ref === source);
  return html`<p class="bar">
    <label
      >As of
      <select value=${source ?? ""} onChange=${(event) => goTo(link("jobs", jobId, "state", event.currentTarget.value))}>
        ${!isEnded && html`<option value=${LIVE}>now, live</option>`}
        ${!isListed && source && html`<option value=${source}>${source}</option>`}
        ${snapshots.map((each) => html`<option key=${each.ref} value=${each.ref}>${labelOf(each)}</option>`)}
      </select>
    </label>
  </p>`;
}

export const labelOf = (snapshot) =>
  `${snapshot.ref}, epoch ${snapshot.epoch}, ${format.date(snapshot.completed)}, ${format.bytes(snapshot.state_size)}`;

/** Where what a source holds is asked for: keyed state, and beside it operator state and timers. */
const beside = (jobId, source) => (source === LIVE ? address("jobs", jobId) : address("jobs", jobId, "snapshots", source));
export const stateAt = (jobId, source) => `${beside(jobId, source)}/state`;

function Inside({ job, jobId, source, uid, name, kind, snapshots }) {
  const { data, error } = useLive(stateAt(jobId, source), source === LIVE ? 1 : Infinity);
  useReady(data !== undefined);
  if (!data) return html`<${Waiting} error=${error} what="The state cannot be shown." />`;
  const vertices = new Map(job.vertices.map((vertex) => [vertex.id, vertex]));
  const operators = data.operators.map((each) => ({ ...each, title: format.operatorTitle(vertices.get(each.vertex) ?? each) }));
  const operator = operators.find((each) => each.uid === uid);
  const chosen = operator && KINDS[kind].find(operator, name);
  const { One } = KINDS[kind];
  return html`<p class="muted">
      ${source === LIVE ? "As of the end of epoch" : "Taken at the end of epoch"} ${format.number(data.epoch)}.
      ${error ? html` <span class="words">${error.words}</span>` : null}
    </p>
    <${States} jobId=${jobId} source=${source} operators=${operators} uid=${uid} name=${name} kind=${kind} />
    ${uid && !chosen && html`<p class="notice bad">Operator “${uid}” has no ${KINDS[kind].words} “${name ?? ""}” here.</p>`}
    ${chosen &&
    html`<${One}
      key=${`${kind} ${uid} ${name}`}
      jobId=${jobId}
      source=${source}
      operator=${operator}
      state=${chosen}
      snapshots=${snapshots}
      epoch=${data.epoch}
    />`}`;
}

/** What kinds of state an operator may have: how one is found in it, and shown. */
const KEYED = "keyed";
const OPERATOR = "operator";
const TIMERS = "timers";
const KINDS = {
  [KEYED]: { words: "state", find: (operator, name) => operator.states.find((each) => each.name === name), One: OneState },
  [OPERATOR]: {
    words: "operator state",
    find: (operator, name) => operator["operator-states"]?.find((each) => each.name === name),
    One: OneOperatorState,
  },
  [TIMERS]: { words: "timers in", find: (operator) => operator.timers?.some((each) => each.entries !== 0) && operator.timers, One: Timers },
};

function States({ jobId, source, operators, uid, name, kind }) {
  const all = (field) => operators.flatMap((operator) => (operator[field] ?? []).map((state) => ({ operator, state })));
  const [keyed, others] = [all("states"), all("operator-states")];
  const timers = all("timers").filter(({ state }) => state.entries !== 0);
  if (!keyed.length && !others.length && !timers.length) return html`<p class="muted">No operator keeps state.</p>`;
  const row = (of, operator, called, cells) => {
    const isChosen = of === kind && operator.uid === uid && (of === TIMERS || called === name);
    const href = link("jobs", jobId, "state", source, operator.uid, of === TIMERS ? TIMERS : called, of);
    return html`<tr key=${`${operator.uid} ${called}`} class=${isChosen ? "chosen" : ""}>
      <th scope="row"><${OperatorName} operator=${operator} /></th>
      <td data-label=${of === TIMERS ? "Timers" : "State"}><a href=${href} aria-current=${isChosen ? "true" : null}>${called}</a></td>
      ${cells.map(([label, cell, isEnd]) => html`<td data-label=${label} class=${isEnd ? "end" : ""}>${cell}</td>`)}
    </tr>`;
  };
  return html`${keyed.length > 0 &&
    html`<${Table} label="Keyed states" head=${["Operator", "State", "Kind", "Key", "Value", end("Keys"), end("Entries"), "Time to live"]} isStacked=${true}>
      ${keyed.map(({ operator, state }) =>
        row(KEYED, operator, state.name, [
          ["Kind", state.kind],
          ["Key", html`<code>${state["key-type"]}</code>`],
          [
            "Value",
            html`<code>${state["map-key-type"] ? `${state["map-key-type"]} → ${state.type}` : state.type}</code>
              ${state["window-type"] && html` <span class="muted small">by window</span>`}`,
          ],
          ["Keys", format.held(state.keys, state["entries-are-exact"]), true],
          ["Entries", format.held(state.entries, state["entries-are-exact"], "not counted", source === LIVE ? "≈" : "≤"), true],
          ["Time to live", ttlWords(state.ttl)],
        ]),
      )}
    <//>`}
    ${others.length > 0 &&
    html`<h3>Broadcast and operator state</h3>
      <${Table} label="Operator states" head=${["Operator", "State", "Mode", "Type", end("Elements")]} isStacked=${true}>
        ${others.map(({ operator, state }) =>
          row(OPERATOR, operator, state.name, [
            ["Mode", state.mode],
            ["Type", html`<code>${state["key-type"] ? `${state["key-type"]} → ${state.type}` : state.type}</code>`],
            ["Elements", format.number(state.elements, "not counted"), true],
          ]),
        )}
      <//>`}
    ${timers.length > 0 &&
    html`<h3>Timers</h3>
      <${Table} label="Timers" head=${["Operator", "Timers", end("Pending"), source === LIVE && "Next"].filter(Boolean)} isStacked=${true}>
        ${timers.map(({ operator, state }) =>
          row(TIMERS, operator, `in ${state["time-domain"]}`, [
            ["Pending", format.number(state.entries, "not counted"), true],
            ...(source === LIVE ? [["Next", format.watermark(state.next ?? null)]] : []),
          ]),
        )}
      <//>`}`;
}

function OperatorName({ operator }) {
  const other = operator.title === operator.uid ? operator.name : `uid ${operator.uid}`;
  return html`${operator.title} <span class="muted small">${other}</span>`;
}

function ttlWords(ttl) {
  if (ttl === null || ttl === undefined || ttl === false) return "none";
  if (ttl === true) return "yes";
  return typeof ttl === "number" ? format.duration(ttl) : String(ttl);
}

const VALUE = { name: "Value", show: (entry) => html`<${Value} value=${entry.value} />` };
const KEY = { name: "Key", show: (entry) => html`<${Value} value=${entry.key} />` };
const WINDOW = { name: "Window", isFor: (entry) => entry.window !== undefined, show: (entry) => format.windowText(entry.window) };
const KEY_GROUP = { name: "Key group", isEnd: true, show: (entry) => entry["key-group"] ?? "-" };

function OneState({ jobId, source, operator, state, snapshots }) {
  const at = `${stateAt(jobId, source)}/${address(operator.uid, state.name)}`;
  const mapped = source === LIVE ? snapshots.find((each) => each.kind === "CHECKPOINT") ?? snapshots[0] : { ref: source };
  return html`<section class="card" aria-labelledby="one-state">
    <h3 id="one-state">${state.name} <span class="muted">of ${operator.title}</span></h3>
    <${Lookup} at=${at} state=${state} isLive=${source === LIVE} />
    <${HeatMap}
      at=${mapped ? `${stateAt(jobId, mapped.ref)}/${address(operator.uid, state.name)}/key-groups` : null}
      asOf=${source === LIVE ? mapped?.ref : null}
      parallelism=${source === LIVE ? undefined : operator.parallelism}
    />
    <${Entries} title="Keys" label="Keys and values" what="key" at=${`${at}/keys`} columns=${[KEY, WINDOW, VALUE, KEY_GROUP]} isLive=${source === LIVE} />
  </section>`;
}

/** Broadcast state, or a list of an operator. On a live job it is kept fresh. */
function OneOperatorState({ jobId, source, operator, state, epoch }) {
  const isBroadcast = state.mode === "broadcast";
  const columns = isBroadcast
    ? [KEY, VALUE]
    : [{ name: "Subtask", show: (entry) => entry.subtask ?? "-" }, { ...VALUE, name: "Element" }];
  return html`<section class="card" aria-labelledby="one-state">
    <h3 id="one-state">${state.name} <span class="muted">of ${operator.title}</span></h3>
    <p class="muted small">
      ${isBroadcast
        ? "The same in every subtask; shown as the first has it."
        : "Each subtask has elements of its own. A function that writes them when a snapshot is taken shows those of the last one."}
    </p>
    <${Entries}
      title=${isBroadcast ? "Entries" : "Elements"}
      label=${isBroadcast ? "Keys and values" : "Elements"}
      what=${isBroadcast ? "key" : "element"}
      at=${`${beside(jobId, source)}/operator-state/${address(operator.uid, state.name)}`}
      columns=${columns}
      isLive=${source === LIVE}
      tick=${source === LIVE ? epoch : undefined}
    />
  </section>`;
}

function Timers({ jobId, source, operator, state, epoch }) {
  const columns = [
    { name: "Time", show: (entry) => format.watermark(entry.timestamp) },
    { name: "Time domain", show: (entry) => entry["time-domain"] },
    KEY,
    WINDOW,
    KEY_GROUP,
  ];
  return html`<section class="card" aria-labelledby="one-state">
    <h3 id="one-state">Timers <span class="muted">of ${operator.title}</span></h3>
    ${source === LIVE && html`<p class="muted small">The next ones, the earliest first. A checkpoint has all of them.</p>`}
    <${Entries}
      title="Pending"
      label="Pending timers"
      total=${source === LIVE ? state.reduce((sum, each) => sum + each.entries, 0) : undefined}
      what="key"
      at=${`${beside(jobId, source)}/timers/${address(operator.uid)}`}
      columns=${columns}
      isLive=${source === LIVE}
      tick=${source === LIVE ? epoch : undefined}
    />
  </section>`;
}
