// The keys of a state page by page, in the order of the store.

import { ask, query } from "../api.js";
import * as format from "../format.js";
import { html, useEffect, useState } from "../html.js";
import { Table, ErrorNotice, Value, end } from "../widgets.js";

const LIMIT = 50;

export function Keys({ at, isLive }) {
  const [pages, setPages] = useState([{ cursor: "", first: 0 }]); // those so far; the last one is on show
  const [page, setPage] = useState(null);
  const [error, setError] = useState(null);
  const [round, setRound] = useState(0);
  const { cursor, first } = pages.at(-1);
  useEffect(() => {
    let isLeft = false;
    ask(`${at}/keys${query({ cursor, limit: LIMIT })}`).then(
      (answer) => {
        if (isLeft) return;
        setPage({ ...answer, cursor, first });
        setError(null);
      },
      (failure) => {
        if (!isLeft) setError(failure);
      },
    );
    return () => {
      isLeft = true;
    };
  }, [at, cursor, round]);
  const hasWindows = page?.entries.some((entry) => entry.window !== undefined);
  const isOld = page?.cursor !== cursor; // the page asked for is still on its way
  return html`<h4>Keys</h4>
    <${ErrorNotice} error=${error} />
    ${page &&
    html`<div class="bar">
        <button type="button" disabled=${isOld || pages.length === 1} onClick=${() => setPages(pages.slice(0, -1))}>Previous</button>
        <button type="button" disabled=${isOld || !page.next} onClick=${() => setPages([...pages, { cursor: page.next, first: first + page.entries.length }])}>Next</button>
        ${isLive && html`<button type="button" onClick=${() => setRound(round + 1)}>Refresh</button>`}
        <span class="muted" role="status"
          >${page.entries.length
            ? `${format.number(page.first + 1)} to ${format.number(page.first + page.entries.length)}${page.next ? "" : ", the last"}`
            : "No keys"}${page.epoch !== undefined ? `, as of epoch ${format.number(page.epoch)}` : ""}</span
        >
      </div>
      ${page.entries.length > 0 &&
      html`<${Table} label="Keys and values" head=${["Key", hasWindows && "Window", "Value", end("Key group")].filter(Boolean)}>
        ${page.entries.map(
          (entry) =>
            html`<tr key=${format.json([entry.key, entry.window])}>
              <th scope="row"><${Value} value=${entry.key} /></th>
              ${hasWindows && html`<td>${format.windowText(entry.window)}</td>`}
              <td><${Value} value=${entry.value} /></td>
              <td class="end">${entry["key-group"] ?? "-"}</td>
            </tr>`,
        )}
      <//>`}`}`;
}
