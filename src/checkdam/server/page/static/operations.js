// Long work started from the page: started, polled until it ends, and shown in words. It lives as long as the page, so
// leaving a view does not lose a result.

import { address, ask, query, splitMessage, Unreachable } from "./api.js";
import { refreshAll } from "./live.js";
import { useEffect, useState } from "./html.js";

const operations = [];
const listeners = new Set();
let count = 0;

function changed() {
  for (const listener of listeners) listener({});
}

export function useOperations(jobId) {
  const [, render] = useState({});
  useEffect(() => {
    listeners.add(render);
    return () => listeners.delete(render);
  }, []);
  return operations.filter((operation) => operation.jobId === jobId);
}

export function dismiss(operation) {
  operations.splice(operations.indexOf(operation), 1);
  changed();
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Start `what.start()`, which gives the path of a status or null; then ask there until it has ended. */
async function perform(what) {
  const operation = { ...what, id: (count += 1), state: "running", words: `${what.title}: under way…`, details: "" };
  operations.push(operation);
  changed();
  try {
    const status = await what.start();
    const outcome = status === null ? {} : await watch(status);
    operation.words = what.describe(outcome);
    operation.state = "done";
  } catch (failure) {
    operation.state = "failed";
    operation.endsJob = false;
    operation.words = `${what.title} failed: ${failure.words ?? failure.message}`;
    operation.details = failure.details ?? "";
  }
  changed();
  refreshAll();
}

class Failed extends Error {
  constructor(cause) {
    const [words, details] = splitMessage(cause.message ?? cause["stack-trace"] ?? cause.class ?? "no reason was given");
    super(words);
    this.words = words;
    this.details = details || (cause.message ? (cause["stack-trace"] ?? "") : "");
  }
}

async function watch(path) {
  let delay = 100;
  let misses = 0;
  for (;;) {
    try {
      const answer = await ask(path);
      misses = 0;
      if (answer.status?.id === "COMPLETED") return outcomeOf(answer.operation ?? {});
    } catch (failure) {
      if (!(failure instanceof Unreachable)) throw failure;
      misses += 1;
      if (misses > 4) throw new Error("the server ended before it sent the result");
    }
    await pause(delay);
    delay = Math.min(delay * 1.6, 2000);
  }
}

function outcomeOf(operation) {
  const cause = operation["failure-cause"] ?? operation.failureCause;
  if (cause) throw new Failed(cause);
  return operation;
}

const job = (jobId, ...rest) => address("jobs", jobId, ...rest);

async function request(path, method, body, statusAt) {
  const answer = await ask(path, { method, body });
  const id = answer["request-id"] ?? answer.triggerid;
  return id ? statusAt(id) : null;
}

export function takeCheckpoint(jobId, { full }) {
  const body = { checkpointType: full ? "FULL" : "CONFIGURED" };
  return perform({
    jobId,
    title: full ? "Full checkpoint" : "Checkpoint",
    start: () => request(job(jobId, "checkpoints"), "POST", body, (id) => job(jobId, "checkpoints", id)),
    describe: (outcome) => `Checkpoint ${outcome.checkpointId} is complete.`,
  });
}

export function takeSavepoint(jobId, { directory, format }) {
  const body = { "target-directory": directory || undefined, formatType: format, "cancel-job": false };
  return perform({
    jobId,
    title: "Savepoint",
    start: () => request(job(jobId, "savepoints"), "POST", body, (id) => job(jobId, "savepoints", id)),
    describe: (outcome) => `Savepoint is complete: ${outcome.location}`,
  });
}

export function stopWithSavepoint(jobId, { directory, format, drain }) {
  const body = { targetDirectory: directory || undefined, formatType: format, drain: Boolean(drain) };
  return perform({
    jobId,
    title: "Stop with savepoint",
    endsJob: true,
    start: () => request(job(jobId, "stop"), "POST", body, (id) => job(jobId, "savepoints", id)),
    describe: (outcome) => `The job has stopped. Its savepoint: ${outcome.location}`,
  });
}

export function rescale(jobId, parallelism) {
  const path = `${job(jobId, "rescaling")}${query({ parallelism })}`;
  return perform({
    jobId,
    title: `Rescaling to ${parallelism}`,
    start: () => request(path, "PATCH", undefined, (id) => job(jobId, "rescaling", id)),
    describe: () => `The job runs with parallelism ${parallelism}.`,
  });
}

export function cancel(jobId) {
  return perform({
    jobId,
    title: "Cancel",
    endsJob: true,
    start: () => request(`${job(jobId)}${query({ mode: "cancel" })}`, "PATCH", undefined, () => null),
    describe: () => "The job was asked to cancel.",
  });
}

export function dispose(jobId, path) {
  return perform({
    jobId,
    title: "Disposal of the savepoint",
    start: () =>
      request("savepoint-disposal", "POST", { "savepoint-path": path }, (id) => address("savepoint-disposal", id)),
    describe: () => `The savepoint ${path} is deleted.`,
  });
}
