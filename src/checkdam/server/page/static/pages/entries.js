// Entries of a state page by page: its keys, elements of operator state, timers. The server looks for those that fit a
// filter, a limited number of them a request; so a page is gathered from several answers.

import { ask, query } from "../api.js";
import * as format from "../format.js";
import { html, useEffect, useState } from "../html.js";
import { Table, ErrorNotice, end } from "../widgets.js";

const LIMIT = 50;
const ROUNDS = 20; // answers that are asked for to fill one page

/**
 * `at` is where the entries are asked for; `columns` are `{ name, isEnd, show(entry) }`, the first of which names a row.
 * With `tick` the page is asked for again whenever that changes; without, `isLive` gives it a button. `total` is how
 * many there are where the server tells only the first.
 */
export function Entries({ title, label, what, at, columns, isLive, tick, total }) {
  const [filter, setFilter] = useState("");
  return html`<h4>${title}</h4>
    <${Filter} what=${what} filter=${filter} onChange=${setFilter} />
    <${Pages} key=${filter} label=${label} what=${what} at=${at} columns=${columns} isLive=${isLive} tick=${tick} total=${total} filter=${filter} />`;
}

function Filter({ what, filter, onChange }) {
  const [text, setText] = useState(filter);
  const go = (event) => {
    event.preventDefault();
    onChange(text);
  };
  const clear = () => {
    setText("");
    onChange("");
  };
  return html`<form class="bar" role="search" onSubmit=${go}>
    <label
      >Filter
      <input
        type="search"
        value=${text}
        maxlength="200"
        autocomplete="off"
        spellcheck="false"
        placeholder=${`part of a ${what}`}
        onInput=${(event) => setText(event.currentTarget.value)}
    /></label>
    <button type="submit">Filter</button>
    ${filter && html`<button type="button" class="plain" onClick=${clear}>Show all</button>`}
  </form>`;
}

function Pages({ label, what, at, columns, isLive, tick, total, filter }) {
  const [pages, setPages] = useState([{ cursor: "", first: 0 }]); // those so far; the last one is on show
  const [page, setPage] = useState(null);
  const [error, setError] = useState(null);
  const [round, setRound] = useState(0);
  const { cursor, first } = pages.at(-1);
  useEffect(() => {
    const asked = { isLeft: false };
    gather(at, cursor, filter, asked).then(
      (found) => {
        if (asked.isLeft) return;
        setPage({ ...found, cursor, first });
        setError(null);
      },
      (failure) => {
        if (!asked.isLeft) setError(failure);
      },
    );
    return () => {
      asked.isLeft = true;
    };
  }, [at, cursor, round, tick]);
  const shown = columns.filter((column) => !column.isFor || page?.entries.some(column.isFor));
  const isOld = page?.cursor !== cursor; // the page asked for is still on its way
  return html`<${ErrorNotice} error=${error} />
    ${!page && !error && html`<p class="waiting">Loading…</p>`}
    ${page &&
    html`<div class="bar">
        ${(page.next || pages.length > 1) &&
        html`<button type="button" disabled=${isOld || pages.length === 1} onClick=${() => setPages(pages.slice(0, -1))}>Previous</button>
          <button type="button" disabled=${isOld || !page.next} onClick=${() => setPages([...pages, { cursor: page.next, first: first + page.entries.length }])}>Next</button>`}
        ${isLive && tick === undefined && html`<button type="button" onClick=${() => setRound(round + 1)}>Refresh</button>`}
        <span class="muted" role="status">${words(page, what, filter, total)}</span>
      </div>
      ${page.entries.length > 0 &&
      html`<${Table} label=${label} head=${shown.map((column) => (column.isEnd ? end(column.name) : column.name))} isStacked=${true}>
        ${page.entries.map(
          (entry, place) =>
            html`<tr key=${entry.key === undefined ? first + place : format.json([entry.key, entry.window, entry.timestamp])}>
              ${shown.map((column, index) =>
                index === 0
                  ? html`<th scope="row" data-label=${column.name}>${column.show(entry)}</th>`
                  : html`<td class=${column.isEnd ? "end" : ""} data-label=${column.name}>${column.show(entry)}</td>`,
              )}
            </tr>`,
        )}
      <//>`}`}`;
}

/** Asks until the page is full, there is no more, or enough was asked. */
async function gather(at, cursor, filter, asked) {
  const entries = [];
  const epochs = [];
  let next = cursor;
  let scanned = 0;
  for (let round = 0; round < ROUNDS && !asked.isLeft; round += 1) {
    const answer = await ask(at + query({ cursor: next, limit: LIMIT - entries.length, filter }));
    entries.push(...answer.entries);
    epochs.push(answer.epoch);
    scanned += answer.scanned ?? 0;
    next = answer.next;
    if (!next || entries.length >= LIMIT) break;
  }
  return { entries, next, scanned, epochs: [Math.min(...epochs), Math.max(...epochs)] };
}

function words({ entries, first, next, scanned, epochs }, what, filter, total) {
  const [from, to] = epochs;
  const epoch = `as of epoch ${format.number(from)}${to > from ? ` to ${format.number(to)}` : ""}`;
  const looked = filter && scanned ? `, ${format.number(scanned)} looked at${next ? "; Next goes on" : ""}` : "";
  return `${places(entries, first, next, what, filter, total)}${looked}, ${epoch}`;
}

function places(entries, first, next, what, filter, total) {
  const count = entries.length;
  if (!count) return first ? "No more" : filter ? `No ${what} fits` : "Nothing";
  if (total !== undefined) return `The next ${format.number(count)} of ${format.number(total)}`;
  return `${format.number(first + 1)} to ${format.number(first + count)}${next ? "" : ", the last"}`;
}
