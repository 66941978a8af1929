// The small parts that pages are made of.

import { html, useEffect, useId, useRef, useState } from "./html.js";
import * as format from "./format.js";

const GOOD = new Set(["RUNNING", "FINISHED", "COMPLETED"]);
const BAD = new Set(["FAILED", "FAILING"]);

export function Badge({ status }) {
  const kind = BAD.has(status) ? "bad" : status === "RUNNING" ? "live" : GOOD.has(status) ? "good" : "calm";
  return html`<span class="badge ${kind}">${status}</span>`;
}

/** A refusal of the server in words, what else it said folded away. */
export function ErrorNotice({ error, what }) {
  if (!error) return null;
  return html`<div class="notice bad" role="alert">
    ${what && html`<strong>${what} </strong>`}<span class="words">${error.words ?? error.message}</span>
    ${error.details && html`<details><summary>Full answer of the server</summary><pre>${error.details}</pre></details>`}
  </div>`;
}

/** What to show while there is no data yet: nothing for a moment, so that a quick answer does not flicker. */
export function Waiting({ error, what }) {
  if (error) return html`<${ErrorNotice} error=${error} what=${what} />`;
  return html`<p class="waiting" role="status">Loading…</p>`;
}

/** A table that scrolls by itself where it is wider than the page. */
export function Table({ label, head, children, isStacked }) {
  return html`<div class="scroll" role="region" aria-label=${label} tabindex="0">
    <table class=${isStacked ? "stacked" : ""}>
      <caption class="hidden">${label}</caption>
      <thead>
        <tr>${head.map((name) => html`<th scope="col" class=${name.end ? "end" : ""}>${name.end ?? name}</th>`)}</tr>
      </thead>
      <tbody>${children}</tbody>
    </table>
  </div>`;
}

/** Column of figures: set to the right. */
export const end = (name) => ({ end: name });

/** Names and values, as a list that screen readers tell as such. */
export function Facts({ facts }) {
  return html`<dl class="facts">
    ${facts
      .filter(Boolean)
      .map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value ?? "-"}</dd></div>`)}
  </dl>`;
}

/** Copies a text; where there is no clipboard it marks the text in `place` for the reader's own copy. */
function CopyButton({ text, name, place }) {
  const [isDone, setDone] = useState(false);
  useEffect(() => {
    const timer = isDone ? setTimeout(() => setDone(false), 1500) : null;
    return () => clearTimeout(timer);
  }, [isDone]);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setDone(true);
    } catch {
      getSelection().selectAllChildren(place.current);
    }
  };
  return html`<button type="button" class="small plain" onClick=${copy} aria-label=${`Copy ${name}`}>
    ${isDone ? "copied" : "copy"}
  </button>`;
}

export function Copied({ text }) {
  const place = useRef(null);
  return html`<span class="copied"><code ref=${place}>${text}</code><${CopyButton} text=${text} name=${text} place=${place} /></span>`;
}

export function Tabs({ label, tabs, current }) {
  const bar = useRef(null);
  useEffect(() => {
    const tab = bar.current.querySelector("[aria-current]");
    if (!tab) return; // none of these is on show
    const { left, right } = bar.current.getBoundingClientRect();
    const at = tab.getBoundingClientRect();
    if (at.left < left || at.right > right) bar.current.scrollLeft += at.left - left - 16;
  }, [current]);
  return html`<nav class="tabs" aria-label=${label} ref=${bar}>
    <ul>
      ${tabs.map(
        ([id, name, href, note]) =>
          html`<li key=${id}>
            <a href=${href} aria-current=${id === current ? "page" : null}
              >${name}${note ? html`<span class="note">${note}</span>` : null}</a
            >
          </li>`,
      )}
    </ul>
  </nav>`;
}

/** A modal question. `onSubmit` gets the form's values; the opener gets the focus back when it closes. */
export function Question({ title, children, submit, isGrave, onSubmit, onClose }) {
  const dialog = useRef(null);
  const heading = useId();
  useEffect(() => {
    if (!dialog.current.open) dialog.current.showModal();
  }, []);
  const answer = (event) => {
    event.preventDefault();
    const values = Object.fromEntries(new FormData(event.currentTarget));
    dialog.current.close();
    onSubmit(values);
  };
  return html`<dialog ref=${dialog} aria-labelledby=${heading} onClose=${onClose}>
    <form onSubmit=${answer}>
      <h2 id=${heading}>${title}</h2>
      ${children}
      <div class="buttons">
        <button type="button" class="plain" onClick=${() => dialog.current.close()}>Back</button>
        <button type="submit" class=${isGrave ? "grave" : "main"}>${submit}</button>
      </div>
    </form>
  </dialog>`;
}

const LONG = 100;

/** A key or a value of state as JSON; a long one is folded, and can be unfolded and copied. */
export function Value({ value }) {
  const text = format.json(value);
  const place = useRef(null);
  if (text.length <= LONG) return html`<code class="value">${text}</code>`;
  return html`<details class="value">
    <summary><code>${text.slice(0, LONG)}…</code> <span class="muted small length">${format.number(text.length)} characters</span></summary>
    <pre ref=${place}>${format.json(value, 2)}</pre>
    <${CopyButton} text=${format.json(value, 2)} name="value" place=${place} />
  </details>`;
}

const phone = matchMedia("(max-width: 640px)"); // as in style.css

export function usePhone() {
  const [isPhone, setPhone] = useState(phone.matches);
  useEffect(() => {
    const follow = () => setPhone(phone.matches);
    phone.addEventListener("change", follow);
    return () => phone.removeEventListener("change", follow);
  }, []);
  return isPhone;
}

/** Marks the moment from which the page can be used, once for each address shown. */
export function useReady(isReady) {
  const { hash } = location;
  useEffect(() => {
    if (isReady) performance.mark("checkdam:interactive", { detail: hash });
  }, [isReady, hash]);
}
