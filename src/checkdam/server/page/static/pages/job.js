// One job: its head with the buttons, and the tabs below.

import { address, query } from "../api.js";
import { Actions, Operations } from "../actions.js";
import { ENDED, Ending, useExpectedEnd } from "../ending.js";
import * as format from "../format.js";
import { html, useEffect, useState } from "../html.js";
import { useLive } from "../live.js";
import { useOperations } from "../operations.js";
import { link } from "../router.js";
import { Badge, Copied, Facts, Tabs, Waiting, usePhone } from "../widgets.js";
import { Checkpoints } from "./checkpoints.js";
import { Configuration } from "./configuration.js";
import { Exceptions } from "./exceptions.js";
import { Logs } from "./logs.js";
import { Overview } from "./overview.js";
import { Savepoints } from "./savepoints.js";
import { State } from "./state.js";

const VIEWER = crypto.getRandomValues(new Uint32Array(2)).join("-"); // so that the server waits for this page at the end
const SAVEPOINT_DIRECTORIES = ["execution.checkpointing.savepoint-dir", "state.savepoints.dir"];

const TABS = {
  overview: ["Overview", Overview],
  exceptions: ["Exceptions", Exceptions],
  checkpoints: ["Checkpoints", Checkpoints],
  state: ["State", State],
  savepoints: ["Savepoints", Savepoints],
  logs: ["Logs", Logs],
  configuration: ["Configuration", Configuration],
};

export function Job({ jobId, tab = "overview", rest }) {
  const { data: job, error } = useLive(address("jobs", jobId) + query({ viewer: VIEWER }));
  const isEnded = ENDED.has(job?.state);
  const config = useLive(address("jobs", jobId, "config"), Infinity).data;
  const isPhone = usePhone();
  const [isOpen, setOpen] = useState(false); // the part of the head that a phone has no room for
  const name = job?.name;
  useExpectedEnd(job, useOperations(jobId).some((operation) => operation.endsJob));
  useEffect(() => {
    document.title = name ? `${name} – Checkdam` : "Checkdam";
  }, [name]);
  if (!job) return html`<h1 tabindex="-1">Job</h1><${Waiting} error=${error} what="The job cannot be shown." />`;
  const [, Page] = TABS[tab] ?? TABS.overview;
  return html`<div class="job-head">
      <div class="title">
        <h1 tabindex="-1">${job.name}</h1>
        <${Badge} status=${job.state} />
        ${isPhone &&
        html`<button type="button" class="fold" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>Actions and facts</button>`}
      </div>
      ${(isOpen || !isPhone) && html`<${Actions} job=${job} directory=${directoryOf(job, config)} />`}
    </div>
    ${(isOpen || !isPhone) &&
    html`<${Facts}
      facts=${[
        ["Job id", html`<${Copied} text=${job.jid} />`],
        ["Started", format.date(job["start-time"])],
        isEnded && ["Ended", format.date(job["end-time"])],
        ["Duration", format.duration(job.duration)],
        ["Parallelism", `${parallelismOf(job)} of at most ${job.maxParallelism > 0 ? job.maxParallelism : "?"}`],
        job.epoch !== undefined && ["Last epoch", format.number(job.epoch)],
        job.restarts !== undefined && ["Restarts", format.number(job.restarts)],
      ]}
    />`}
    <${Operations} jobId=${jobId} progress=${job.progress} />
    <${Ending} job=${job} jobId=${jobId} isOverview=${tab === "overview"} />
    <${Tabs}
      label="Of this job"
      current=${tab}
      tabs=${Object.entries(TABS).map(([id, [words]]) => [id, words, link("jobs", jobId, id)])}
    />
    <${Page} job=${job} jobId=${jobId} rest=${rest} isEnded=${isEnded} config=${config} />`;
}

export const parallelismOf = (job) =>
  job.parallelism ?? Math.max(1, ...(job.vertices ?? []).map((vertex) => vertex.parallelism));

function directoryOf(job, config) {
  const settings = config?.["execution-config"]?.["user-config"] ?? {};
  return job["savepoint-directory"] ?? SAVEPOINT_DIRECTORIES.map((key) => settings[key]).find(Boolean) ?? null;
}
