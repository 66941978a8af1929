// State: live, or as a retained checkpoint or savepoint holds it. A key at a time, page by page, or by key group.

import { address } from "../api.js";
import { Compare } from "./compare.js";
import * as format from "../format.js";
import { HeatMap } from "../heatmap.js";
import { html } from "../html.js";
import { useLive } from "../live.js";
import { goTo, link } from "../router.js";
import { Table, Tabs, Waiting, end, useReady } from "../widgets.js";
import { Keys } from "./keys.js";
import { Lookup } from "./lookup.js";

export const LIVE = "live";
const COMPARE = "compare";

export function State({ jobId, rest, job, isEnded }) {
  const listed = useLive(address("jobs", jobId, "snapshots"), isEnded ? 10 : 2).data;
  const snapshots = listed?.snapshots ?? [];
  const [asked, uid, name] = rest;
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
            ? html`<${Inside} key=${source} jobId=${jobId} source=${source} uid=${uid} name=${name} snapshots=${snapshots} />`
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

/** Where the state of a source is asked for. */
export const stateAt = (jobId, source) =>
  source === LIVE ? address("jobs", jobId, "state") : address("jobs", jobId, "snapshots", source, "state");

function Inside({ jobId, source, uid, name, snapshots }) {
  const { data, error } = useLive(stateAt(jobId, source), source === LIVE ? 1 : Infinity);
  useReady(data !== undefined);
  if (!data) return html`<${Waiting} error=${error} what="The state cannot be shown." />`;
  const operator = data.operators.find((each) => each.uid === uid);
  const state = operator?.states.find((each) => each.name === name);
  return html`<p class="muted">
      ${source === LIVE ? "As of the end of epoch" : "Taken at the end of epoch"} ${format.number(data.epoch)}.
      ${error ? html` <span class="words">${error.words}</span>` : null}
    </p>
    <${States} jobId=${jobId} source=${source} operators=${data.operators} uid=${uid} name=${name} />
    ${uid && !state && html`<p class="notice bad">Operator “${uid}” has no state “${name ?? ""}” here.</p>`}
    ${state &&
    html`<${OneState} key=${`${uid} ${name}`} jobId=${jobId} source=${source} operator=${operator} state=${state} snapshots=${snapshots} />`}`;
}

function States({ jobId, source, operators, uid, name }) {
  const rows = operators.flatMap((operator) => operator.states.map((state) => ({ operator, state })));
  const others = operators.flatMap((operator) => (operator["operator-states"] ?? []).map((state) => ({ operator, state })));
  if (!rows.length && !others.length) return html`<p class="muted">No operator keeps state.</p>`;
  const head = ["Operator", "State", "Kind", "Key", "Value", end("Entries"), "Time to live"];
  return html`${rows.length > 0 &&
    html`<${Table} label="Keyed states" head=${head}>
      ${rows.map(({ operator, state }) => {
        const isChosen = operator.uid === uid && state.name === name;
        return html`<tr key=${`${operator.uid} ${state.name}`} class=${isChosen ? "chosen" : ""}>
          <th scope="row">${operator.name} <span class="muted small">uid ${operator.uid}</span></th>
          <td>
            <a href=${link("jobs", jobId, "state", source, operator.uid, state.name)} aria-current=${isChosen ? "true" : null}>${state.name}</a>
          </td>
          <td>${state.kind}</td>
          <td><code>${state["key-type"]}</code></td>
          <td>
            <code>${state["map-key-type"] ? `${state["map-key-type"]} → ${state.type}` : state.type}</code>
            ${state["window-type"] && html` <span class="muted small">by window</span>`}
          </td>
          <td class="end">${format.number(state.entries, "not counted")}</td>
          <td>${ttlWords(state.ttl)}</td>
        </tr>`;
      })}
    <//>`}
    ${others.length > 0 &&
    html`<h3>Operator states</h3>
      <${Table} label="Operator states" head=${["Operator", "State", "Mode", "Type", end("Elements")]}>
        ${others.map(
          ({ operator, state }) =>
            html`<tr key=${`${operator.uid} ${state.name}`}>
              <th scope="row">${operator.name} <span class="muted small">uid ${operator.uid}</span></th>
              <td>${state.name}</td>
              <td>${state.mode}</td>
              <td><code>${state.type}</code></td>
              <td class="end">${format.number(state.elements, "not counted")}</td>
            </tr>`,
        )}
      <//>`}`;
}

function ttlWords(ttl) {
  if (ttl === null || ttl === undefined || ttl === false) return "none";
  if (ttl === true) return "yes";
  return typeof ttl === "number" ? format.duration(ttl) : String(ttl);
}

function OneState({ jobId, source, operator, state, snapshots }) {
  const at = `${stateAt(jobId, source)}/${address(operator.uid, state.name)}`;
  const mapped = source === LIVE ? snapshots.find((each) => each.kind === "CHECKPOINT") ?? snapshots[0] : { ref: source };
  return html`<section class="card" aria-labelledby="one-state">
    <h3 id="one-state">${state.name} <span class="muted">of ${operator.name}</span></h3>
    <${Lookup} at=${at} state=${state} isLive=${source === LIVE} />
    <${HeatMap}
      at=${mapped ? `${stateAt(jobId, mapped.ref)}/${address(operator.uid, state.name)}/key-groups` : null}
      asOf=${source === LIVE ? mapped?.ref : null}
      parallelism=${source === LIVE ? undefined : operator.parallelism}
    />
    <${Keys} at=${at} isLive=${source === LIVE} />
  </section>`;
}
