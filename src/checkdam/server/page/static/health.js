// How a job is doing, at a glance: one quiet line while all is well.

import * as format from "./format.js";
import { html } from "./html.js";
import { link } from "./router.js";

const KINDS = { ok: "good", warning: "warn", failing: "bad" };
const WORDS = { ok: "Healthy", warning: "Attention", failing: "Failing" };

/** A length of time that changes while it is read: its two largest units, or seconds. */
const about = (ms) => {
  const whole = ms < 1000 ? Math.max(0, ms) : Math.round(ms / 1000) * 1000;
  return format.duration(whole).split(" ").slice(0, 2).join(" ");
};

const attempt = ({ attempt, most }) => (most === null ? `attempt ${attempt}` : `attempt ${attempt} of ${most}`);

const failures = ({ "failed-in-a-row": count }) => (count === 1 ? "1 checkpoint failed" : `${format.number(count)} checkpoints failed in a row`);

/** When a job that waits for its restart tries again. */
const nextTry = (restart, now) => (restart["next-at"] > now ? `next try in ${about(restart["next-at"] - now)}` : "trying now");

export const lag = (ms) =>
  ms === null || ms === undefined ? "" : ms >= 0 ? `${about(ms)} behind` : `${about(-ms)} ahead`;

/** A job's health in a few words, for a list. */
export function HealthWords({ health, now }) {
  if (!health || health.level === "ended") return html`<span class="muted">-</span>`;
  const { level, restart, checkpoints } = health;
  const told = [
    level === "failing" && restart && `${attempt(restart)}, ${nextTry(restart, now)}`,
    level === "warning" && restart && !checkpoints && `restarted ${about(now - restart["failed-at"])} ago`,
    checkpoints && failures(checkpoints),
    lag(health["watermark-lag"]),
  ].filter(Boolean);
  const why = [level !== "ok" && restart?.reason, checkpoints?.reason].filter(Boolean).join("; ");
  return html`<span class="badge ${KINDS[level]}">${WORDS[level]}</span> <span class="muted" title=${why}>${told.join(", ")}</span>`;
}

/** Above the graph: why the job restarts and when, which checkpoints fail and why, how late event time is. */
export function HealthStrip({ job, jobId }) {
  const { health, now } = job;
  if (!health || health.level === "ended") return null;
  const { level, restart, checkpoints } = health;
  const lines = [];
  if (restart) {
    const when = level === "failing" ? nextTry(restart, now) : `last restart at ${format.date(restart["failed-at"])}`;
    lines.push([`${level === "failing" ? "Restarting" : "Restarted"}: ${attempt(restart)}, ${when}`, restart.reason, "exceptions"]);
  }
  if (checkpoints) {
    const tolerated = `${format.number(checkpoints.tolerated)} tolerated`;
    lines.push([`${failures(checkpoints)} since ${format.date(checkpoints.since)}, ${tolerated}`, checkpoints.reason, "checkpoints"]);
  }
  const behind = lag(health["watermark-lag"]);
  return html`<section class="health ${KINDS[level]}" role="status" aria-label="Health">
    <p>
      <span class="badge ${KINDS[level]}">${WORDS[level]}</span>
      ${behind && html` <span class="muted">event time ${behind}</span>`}
    </p>
    ${lines.map(
      ([what, why, tab]) =>
        html`<p key=${tab}><a href=${link("jobs", jobId, tab)}>${what}</a>: <span class="words">${why}</span></p>`,
    )}
  </section>`;
}
