// What plots are made of: asked for whole once, afterwards only what is new.

import { address, ask, query, Unreachable, Refused } from "./api.js";
import { useEffect, useState } from "./html.js";

const MOST = 2000; // points kept for each plot
const OVERLAP = 60_000; // asked for again each time: a checkpoint may have ended since

/** {epochs, checkpoints} of a job, oldest first; null until the first answer. `version` moves when the job does. */
export function useSeries(jobId, version) {
  const [series, setSeries] = useState(null);
  useEffect(() => {
    let isLeft = false;
    const since = series?.jobId === jobId ? sinceWhen(series) : undefined;
    ask(address("jobs", jobId, "series") + query({ since })).then(
      (answer) => {
        if (!isLeft) setSeries((known) => joined(known?.jobId === jobId ? known : null, answer, jobId));
      },
      (failure) => {
        if (!(failure instanceof Unreachable || failure instanceof Refused)) throw failure;
        // The notice at the top tells of a server that is gone; the next version of the job asks again.
      },
    );
    return () => {
      isLeft = true;
    };
  }, [jobId, version]);
  return series?.jobId === jobId ? series : null;
}

function sinceWhen(series) {
  const open = series.checkpoints.filter((checkpoint) => checkpoint.status === "IN_PROGRESS");
  return Math.min(series.now - OVERLAP, ...open.map((checkpoint) => checkpoint.triggered));
}

function joined(known, answer, jobId) {
  const merge = (old, fresh, keyOf, at) => {
    const byKey = new Map((old ?? []).map((each) => [keyOf(each), each]));
    for (const each of fresh) byKey.set(keyOf(each), each);
    return [...byKey.values()].sort((a, b) => a[at] - b[at]).slice(-MOST);
  };
  return {
    jobId,
    now: answer.now,
    epochs: merge(known?.epochs, answer.epochs, (epoch) => `${epoch.epoch}@${epoch.ended}`, "ended"),
    checkpoints: merge(known?.checkpoints, answer.checkpoints, (each) => `${each.id}@${each.triggered}`, "triggered"),
  };
}

/** Records a second of each epoch over the time since the one before, waiting included; the first tells nothing. */
export function rates(epochs) {
  return epochs.slice(1).map((epoch, at) => {
    const gap = Math.max(epoch.ended - epochs[at].ended, epoch.duration, 1);
    return [epoch.ended, (1000 * epoch.records) / gap];
  });
}
