// The log files of the driver and the slots: the last lines of one, kept up to date.

import { address, ask, askForText, query } from "../api.js";
import * as format from "../format.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "../html.js";
import { refreshInterval, useLive } from "../live.js";
import { goTo, link } from "../router.js";
import { ErrorNotice, Table, Tabs, Waiting, end, useReady } from "../widgets.js";
import { EMPTY, added, isShown } from "../log_entries.js";

const KINDS = { log: "Log", out: "Printed" };
const LEVELS = { "": "All levels", INFO: "INFO and above", WARN: "WARN and above", ERROR: "ERROR only" };
const NEAR = 40; // pixels from the end at which the reader counts as being there

export function Logs({ job, jobId, rest, isEnded }) {
  const { data, error } = useLive(address("jobs", jobId, "logs"), isEnded ? Infinity : 3);
  const [process = "driver", kind = "log"] = rest;
  useReady(data !== undefined);
  if (!data) return html`<${Waiting} error=${error} what="The logs cannot be listed." />`;
  if (data.directory === null) return html`<h2>Logs</h2><${NoLogs} />`;
  const processes = processesOf(data.logs, isEnded ? 0 : (job.parallelism ?? 0));
  const name = `${process}.${kind}`;
  return html`<h2>Logs</h2>
    <${Tabs}
      label="Kinds of log"
      current=${kind}
      tabs=${Object.entries(KINDS).map(([id, words]) => [id, words, link("jobs", jobId, "logs", process, id)])}
    />
    <${Log} key=${name} jobId=${jobId} name=${name} isEnded=${isEnded} hasLevels=${kind === "log"}>
      <label>
        Process
        <select value=${process} onChange=${(event) => goTo(link("jobs", jobId, "logs", event.target.value, kind))}>
          ${[...new Set([...processes, process])].map((each) => html`<option key=${each} value=${each}>${each.replace("-", " ")}</option>`)}
        </select>
      </label>
    <//>
    <${Files} jobId=${jobId} directory=${data.directory} files=${data.logs} />`;
}

function NoLogs() {
  return html`<p class="muted">
    This job writes no log files. <code>checkdam run</code> writes them; a program that is run by itself does if
    ${" "}<code>env.log.dir</code> is set.
  </p>`;
}

/** The driver, the slots that run, and all that have left a file. */
function processesOf(files, slots) {
  const running = Array.from({ length: slots }, (_, at) => `slot-${at}`);
  const number = (name) => Number(name.split("-")[1] ?? -1);
  return [...new Set(["driver", ...running, ...files.map((file) => file.process)])].sort((a, b) => number(a) - number(b));
}

function Log({ jobId, name, isEnded, hasLevels, children }) {
  const [level, setLevel] = useState("");
  const [isFollowed, setFollowed] = useState(!isEnded);
  const { entries, hasGap, isLoaded, error } = useLines(jobId, name, isFollowed);
  const shown = entries.filter((entry) => isShown(entry, level));
  const box = useEnd(shown, isFollowed);
  return html`<div class="bar">
      ${children}
      ${hasLevels &&
      html`<label>
        Level
        <select value=${level} onChange=${(event) => setLevel(event.target.value)}>
          ${Object.entries(LEVELS).map(([id, words]) => html`<option key=${id} value=${id}>${words}</option>`)}
        </select>
      </label>`}
      ${!isEnded &&
      html`<label>
        <input type="checkbox" checked=${isFollowed} onChange=${(event) => setFollowed(event.target.checked)} /> Follow
      </label>`}
    </div>
    <${ErrorNotice} error=${error} what="The log cannot be shown." />
    <div class="log" ref=${box} role="region" tabindex="0" aria-label=${`Last lines of ${name}`}>
      ${hasGap && html`<p class="muted">Earlier lines are in the files below.</p>`}
      ${shown.map((entry) => html`<pre key=${entry.id} class=${entry.level.toLowerCase()}>${entry.text}</pre>`)}
      ${isLoaded && !error && shown.length === 0 && html`<p class="muted">${entries.length ? "No line of this level." : isEnded ? "Nothing was written." : "Nothing is written yet."}</p>`}
    </div>`;
}

/** The last entries of a log. They stay as they are while it is not followed. */
function useLines(jobId, name, isFollowed) {
  const [state, setState] = useState(EMPTY);
  const cursor = useRef("");
  useEffect(() => {
    let isOver = false;
    let timer = null;
    const look = async () => {
      let pause = refreshInterval();
      try {
        const part = await ask(`${address("jobs", jobId, "logs", name, "lines")}${query({ cursor: cursor.current })}`);
        if (isOver) return;
        const isAll = part.cursor === cursor.current;
        cursor.current = part.cursor;
        setState((before) => added(before, part));
        if (!isAll && part.text) pause = 0; // there may be more
      } catch (error) {
        if (isOver) return;
        setState((before) => ({ ...before, error, isLoaded: true }));
      }
      if (isFollowed) timer = setTimeout(look, document.hidden ? 10 * refreshInterval() : pause);
    };
    if (isFollowed || !cursor.current) look();
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [jobId, name, isFollowed]);
  return state;
}

/** Keeps the end of a log in sight while it is followed, unless the reader has scrolled away from it. */
function useEnd(shown, isFollowed) {
  const box = useRef(null);
  const isAtEnd = useRef(true);
  useEffect(() => {
    const element = box.current;
    const look = () => {
      isAtEnd.current = element.scrollHeight - element.scrollTop - element.clientHeight < NEAR;
    };
    element.addEventListener("scroll", look);
    return () => element.removeEventListener("scroll", look);
  }, []);
  useLayoutEffect(() => {
    isAtEnd.current = true;
  }, [isFollowed]);
  useLayoutEffect(() => {
    if (isAtEnd.current) box.current.scrollTop = box.current.scrollHeight;
  }, [shown.length, shown.at(-1)?.id, shown.at(-1)?.text, isFollowed]);
  return box;
}

function Files({ jobId, directory, files }) {
  return html`<h3>Files <span class="note">${format.number(files.length)}</span></h3>
    <p class="words muted">In <code>${directory}</code> on the driver’s machine.</p>
    ${files.length > 0 &&
    html`<${Table} label="Log files" head=${["Name", "", end("Size"), "Last written"]}>
      ${files.map(
        (file) => html`<tr key=${file.name}>
          <th scope="row"><code>${file.name}</code></th>
          <td><${Download} jobId=${jobId} name=${file.name} /></td>
          <td class="end">${format.bytes(file.size)}</td>
          <td>${format.date(file.mtime)}</td>
        </tr>`,
      )}
    <//>`}`;
}

/** Fetches a file as the page does everything else, so that it works with a token, too. */
function Download({ jobId, name }) {
  const [error, setError] = useState(null);
  const fetchFile = async () => {
    try {
      const text = await askForText(address("jobs", jobId, "logs", name));
      const url = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
      const anchor = Object.assign(document.createElement("a"), { href: url, download: name });
      anchor.click();
      setTimeout(() => URL.revokeObjectURL(url), 10_000);
      setError(null);
    } catch (failure) {
      setError(failure);
    }
  };
  return html`<button type="button" class="small" onClick=${fetchFile} aria-label=${`Download ${name}`}>Download</button>
    <${ErrorNotice} error=${error} />`;
}
