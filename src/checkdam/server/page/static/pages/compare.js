// Two snapshots side by side: which keys came, changed and went.

import { address, query } from "../api.js";
import * as format from "../format.js";
import { html, useState } from "../html.js";
import { useLive } from "../live.js";
import { goTo, link } from "../router.js";
import { Table, Value, Waiting, end, useReady } from "../widgets.js";

const LIMITS = [20, 100, 1000];

export function Compare({ jobId, snapshots, isKnown, rest }) {
  const [older, newer] = chosen(snapshots, rest);
  useReady(isKnown);
  const go = (a, b) => goTo(link("jobs", jobId, "state", "compare", a, b));
  if (!isKnown) return html`<${Waiting} />`;
  if (snapshots.length < 2 && !(older && newer))
    return html`<p class="muted">
      It takes two: ${snapshots.length === 1 ? "only one checkpoint or savepoint of this job is left" : "no checkpoint or savepoint of this job is left"}.
      More are kept with <code>execution.checkpointing.num-retained</code>.
    </p>`;
  const choice = (words, value, change) =>
    html`<label
      >${words}
      <select value=${value} onChange=${(event) => change(event.currentTarget.value)}>
        ${!snapshots.some((each) => each.ref === value) && html`<option value=${value}>${value}</option>`}
        ${snapshots.map(
          (each) => html`<option key=${each.ref} value=${each.ref}>${each.ref}, epoch ${each.epoch}, ${format.date(each.completed)}</option>`,
        )}
      </select>
    </label>`;
  return html`<div class="bar">
      ${choice("Before", older, (ref) => go(ref, newer))} ${choice("After", newer, (ref) => go(older, ref))}
      <button type="button" onClick=${() => go(newer, older)}>Swap</button>
    </div>
    ${older === newer
      ? html`<p class="muted">Both are the same snapshot.</p>`
      : html`<${Difference} key=${`${older} ${newer}`} jobId=${jobId} older=${older} newer=${newer} />`}`;
}

/** What the address names, filled up with the newest there is. */
function chosen(snapshots, [a, b]) {
  const oldestFirst = [...snapshots].sort((x, y) => x.epoch - y.epoch || x.completed - y.completed);
  if (a && b) return [a, b];
  if (a) {
    const at = oldestFirst.findIndex((each) => each.ref === a);
    return at > 0 ? [oldestFirst[at - 1].ref, a] : [a, oldestFirst.at(-1)?.ref ?? a];
  }
  return [oldestFirst.at(-2)?.ref, oldestFirst.at(-1)?.ref];
}

function Difference({ jobId, older, newer }) {
  const [limit, setLimit] = useState(LIMITS[0]);
  const path = address("jobs", jobId, "snapshots", older, "diff", newer) + query({ limit });
  const { data, error } = useLive(path, Infinity);
  if (!data) return html`<${Waiting} error=${error} what="The snapshots cannot be compared." />`;
  if (!data.states.length) return html`<p class="muted">Neither has keyed state.</p>`;
  const head = ["Operator uid", "State", end("Added"), end("Changed"), end("Removed"), end("Unchanged")];
  return html`<${Table} label="Differences by state" head=${head}>
      ${data.states.map(
        (state) =>
          html`<tr key=${`${state.uid} ${state.name}`}>
            <th scope="row">${state.uid}</th>
            <td>${state.name}</td>
            <td class="end">${format.number(state.added)}</td>
            <td class="end">${format.number(state.changed)}</td>
            <td class="end">${format.number(state.removed)}</td>
            <td class="end">${format.number(state.unchanged, "not counted")}</td>
          </tr>`,
      )}
    <//>
    <p class="bar">
      <label
        >Show at most
        <select value=${limit} onChange=${(event) => setLimit(Number(event.currentTarget.value))}>
          ${LIMITS.map((each) => html`<option value=${each}>${each}</option>`)}
        </select>
        keys of each state</label
      >
    </p>
    ${data.states.map((state) => html`<${Examples} key=${`${state.uid} ${state.name}`} state=${state} />`)}`;
}

function Examples({ state }) {
  const total = state.added + state.changed + state.removed;
  if (!state.examples?.length) return html`<h3>${state.uid}: ${state.name}</h3><p class="muted">${total ? "" : "No key differs."}</p>`;
  return html`<h3>${state.uid}: ${state.name}</h3>
    <p class="muted">${format.number(state.examples.length)} of ${format.plural(total, "key")} that differ.</p>
    <${Table} label=${`Keys of ${state.name} that differ`} head=${["What", "Key", "Before", "After"]}>
      ${state.examples.map(
        (example) =>
          html`<tr key=${`${example.what} ${format.json(example.key)}`}>
            <td><span class="change ${example.what}">${example.what}</span></td>
            <th scope="row"><${Value} value=${example.key} /></th>
            <td>${example.what === "added" ? html`<span class="muted">nothing</span>` : html`<${Value} value=${example.before} />`}</td>
            <td>${example.what === "removed" ? html`<span class="muted">nothing</span>` : html`<${Value} value=${example.after} />`}</td>
          </tr>`,
      )}
    <//>`;
}
