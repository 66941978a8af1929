// What plots are made of: asked for whole once, afterwards only what is new.

import { address, ask, query, Unreachable, Refused } from "./api.js";
import { useEffect, useRef, useState } from "./html.js";
import { know } from "./time_axis.js";

const MOST = 5000; // stretches of time kept; beyond it all is asked for again, thinned by the server
const OVERLAP = 90_000; // asked for again each time: an epoch's records count for the time before it
const LONG_PAUSE = 60_000;

/** Columns over time of a job, oldest first; null until the first answer. `version` moves when the job does. */
export function useSeries(jobId, version, isEnded) {
  const [series, setSeries] = useState(null);
  const newest = useRef(null); // as `series`, but an effect of an older rendering sees it too
  const asking = useRef(null); // the job whose answer is under way: one question at a time
  useEffect(() => {
    if (asking.current === jobId) return; // the next version asks
    asking.current = jobId;
    const known = newest.current?.jobId === jobId && newest.current.start.length < MOST ? newest.current : null;
    const since = known ? known.now - OVERLAP : undefined;
    ask(address("jobs", jobId, "series") + query({ since })).then(
      (answer) => {
        if (asking.current !== jobId) return;
        asking.current = null;
        const all = { ...joined(known, answer, since), jobId };
        const end = all.start.length ? all.start.at(-1) + all.width.at(-1) : all.now;
        know({ jobId, first: all.start[0] ?? all.now - 1000, last: isEnded ? end : all.now, events: all.events });
        newest.current = all;
        setSeries(all);
      },
      (failure) => {
        asking.current = null;
        if (!(failure instanceof Unreachable || failure instanceof Refused)) throw failure;
        // The notice at the top tells of a server that is gone; the next version of the job asks again.
      },
    );
  }, [jobId, version, isEnded]);
  useEffect(
    () => () => {
      asking.current = null; // left: an answer that still comes is not for us
    },
    [jobId],
  );
  return series?.jobId === jobId ? series : null;
}

/** Everything known, with the answer in place of what it covers. */
export function joined(known, answer, since) {
  if (!known) return answer;
  const [first = Infinity] = answer.start;
  const overlaps = known.start.findIndex((start) => start >= first);
  const kept = overlaps < 0 ? known.start.length : overlaps;
  const whole = { ...answer, events: [...known.events.filter(({ at }) => at < since), ...answer.events] };
  for (const [name, column] of Object.entries(answer)) {
    if (Array.isArray(column) && name !== "events") whole[name] = [...known[name].slice(0, kept), ...column];
  }
  return whole;
}

/** One column as [[milliseconds, value]]. Where nothing came for long, a null breaks the line if `breaks`. */
export function pointsOf(series, name, { breaks = false } = {}) {
  const points = [];
  let end = Infinity;
  series[name].forEach((value, at) => {
    if (value === null) return;
    const [start, width] = [series.start[at], series.width[at]];
    if (breaks && start - end > Math.max(LONG_PAUSE, 2 * width)) points.push([(start + end) / 2, null]);
    points.push([Math.min(start + width / 2, series.now), value]);
    end = start + width;
  });
  return points;
}
