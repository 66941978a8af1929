// One key of a state. On a live job the answer is kept fresh.

import { query } from "../api.js";
import * as format from "../format.js";
import { html, useId, useState } from "../html.js";
import { useLive } from "../live.js";
import { ErrorNotice, Table, Value } from "../widgets.js";

export function Lookup({ at, state, isLive }) {
  const [asked, setAsked] = useState(null);
  const hint = useId();
  const isMap = isLive && Boolean(state["map-key-type"]); // of a snapshot all of a map is told
  const go = (event) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    setAsked({ key: form.get("key"), "map-key": isMap ? form.get("map-key") : undefined });
  };
  return html`<h4>Look up a key</h4>
    <form class="bar" onSubmit=${go}>
      <label>Key <input name="key" type="text" required autocomplete="off" spellcheck="false" aria-describedby=${hint} /></label>
      ${isMap &&
      html`<label>Key within the map <input name="map-key" type="text" autocomplete="off" spellcheck="false" placeholder="all" /></label>`}
      <button type="submit" class="main">Look up</button>
    </form>
    <p id=${hint} class="muted small">
      A key of type <code>${state["key-type"]}</code>, as JSON; plain words need no quotes.
    </p>
    <div role="status" aria-live="polite">
      ${asked && html`<${Answer} key=${JSON.stringify(asked)} path=${at + query(asked)} asked=${asked} isLive=${isLive} />`}
    </div>`;
}

function Answer({ path, asked, isLive }) {
  const { data, error } = useLive(path, isLive ? 1 : Infinity);
  if (error) return html`<${ErrorNotice} error=${error} />`;
  if (!data) return html`<p class="waiting">Looking…</p>`;
  const where = [
    data["key-group"] !== undefined && `key group ${data["key-group"]}`,
    data.subtask !== undefined && data.subtask !== null && `subtask ${data.subtask}`,
    data.epoch !== undefined && `epoch ${format.number(data.epoch)}`,
  ].filter(Boolean);
  return html`<div class="notice ${data.found ? "good" : "calm"} answer">
    <span
      ><${Value} value=${data.key ?? asked.key} />
      ${data.found ? (data["by-window"] ? " holds" : html` holds <${Value} value=${data.value} />`) : " holds nothing"}</span
    >
    ${data.found &&
    data["by-window"] &&
    html`<${Table} label="By window" head=${["Window", "Value"]} isStacked=${true}>
      ${data.value.map(
        ([window, value]) =>
          html`<tr key=${format.json(window)}>
            <th scope="row">${format.windowText(window)}</th>
            <td data-label="Value"><${Value} value=${value} /></td>
          </tr>`,
      )}
    <//>`}
    <span class="muted small">${where.join(", ")}${isLive ? "; kept up to date" : ""}</span>
  </div>`;
}
