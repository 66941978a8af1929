// The end of a job: what happened, when, what it left and how to go on. An end that was asked for is no alarm.

import * as format from "./format.js";
import { html, useEffect, useRef, useState } from "./html.js";
import { expectEnd } from "./live.js";
import { link } from "./router.js";
import { Copied, Facts } from "./widgets.js";

export const ENDED = new Set(["FINISHED", "CANCELED", "FAILED", "SUSPENDED"]);
const ENDING = new Set(["CANCELLING", "FAILING"]);

/** The server of a job may end with it: tell the frame that its silence is then no surprise. */
export function useExpectedEnd(job, isStopping) {
  const state = job?.state;
  const words = ENDED.has(state) ? "ended" : ENDING.has(state) || isStopping ? "ending" : null;
  useEffect(() => {
    expectEnd(words);
    return () => expectEnd(null);
  }, [words]);
}

/** Open where it is news: on the overview, and where the reader has seen the job run. */
export function Ending({ job, jobId, isOverview }) {
  const hasRun = useRef(false);
  const [choice, setChoice] = useState(null);
  if (!ENDED.has(job.state)) {
    hasRun.current = true;
    return null;
  }
  const isOpen = choice ?? (isOverview || hasRun.current);
  const toggled = (event) => event.currentTarget.open !== isOpen && setChoice(event.currentTarget.open);
  const { savepoint, checkpoint, "is-drained": isDrained, resume } = job.ending ?? {};
  return html`<details class="notice ending ${job.state === "FAILED" ? "bad" : "good"}" open=${isOpen} onToggle=${toggled}>
    <summary><strong>${headOf(job.state, savepoint)}</strong> ${format.date(job["end-time"])}</summary>
    <${Facts}
      facts=${[
        ["After", format.duration(job.duration)],
        savepoint && ["Savepoint", html`<${Copied} text=${savepoint} />`],
        checkpoint && ["Retained checkpoint", html`<${Copied} text=${checkpoint} />`],
        job.ending && !savepoint && !checkpoint && ["Left", "no checkpoint or savepoint"],
        resume && ["Resume with", html`<${Copied} text=${resume} />`],
      ]}
    />
    ${isDrained &&
    html`<p>It was drained: event time has ended, every timer and window has fired. It should not be resumed from this savepoint.</p>`}
    ${job.state === "FAILED" && html`<p><a href=${link("jobs", jobId, "exceptions")}>Why it failed</a></p>`}
  </details>`;
}

function headOf(state, savepoint) {
  if (state === "FINISHED") return savepoint ? "Stopped with a savepoint" : "Finished: its input has ended";
  if (state === "CANCELED") return savepoint ? "Cancelled with a savepoint" : "Cancelled, as asked";
  return state === "SUSPENDED" ? "Suspended: its driver has ended" : "Failed";
}
