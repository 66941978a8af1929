// The page: its frame, and which view an address stands for.

import { setToken } from "./api.js";
import * as format from "./format.js";
import { html, render, useEffect, useRef } from "./html.js";
import { refreshAll, setRefreshInterval, useConnection, useLive } from "./live.js";
import { Job } from "./pages/job.js";
import { Jobs } from "./pages/jobs.js";
import { Slots } from "./pages/slots.js";
import { link, useRoute } from "./router.js";
import { Question, useReady } from "./widgets.js";

const NAMES = { jobs: "Jobs", slots: "Slots" };

function App() {
  const route = useRoute();
  const { data: config, error } = useLive("config", Infinity);
  useEffect(() => setRefreshInterval(config?.["refresh-interval"]), [config]);
  const [section = "jobs", jobId] = route;
  useTitleAndFocus(route);
  const at = (id) => (section === id ? "page" : null);
  return html`<a class="skip" href="#main" onClick=${skip}>Skip to the content</a>
    <header class="frame">
      <a class="name" href="#/"><img src="ui/icon.svg" alt="" width="22" height="22" /> Checkdam</a>
      <nav aria-label="Main">
        <a href=${link("jobs")} aria-current=${jobId ? null : at("jobs")}>Jobs</a>
        <a href=${link("slots")} aria-current=${at("slots")}>Slots</a>
      </nav>
      <span class="muted version">${config ? versionOf(config) : ""}</span>
      <${Zone} />
    </header>
    <${Connection} />
    ${error?.status === 401 && html`<${Token} />`}
    <main id="main" tabindex="-1"><${View} route=${route} /></main>`;
}

/** In which zone all times of the page are. */
function Zone() {
  const { offset, name } = format.zone();
  return html`<span class="muted zone" title=${`All times are in this browser’s time zone: ${name}`}>
    <span class="hidden">Times are in </span>${name !== offset && html`<span class="zone-name">${name}, </span>`}${offset}
  </span>`;
}

const versionOf = (config) =>
  `${config["checkdam-version"] ? `version ${config["checkdam-version"]}, ` : ""}REST of Flink ${config["flink-version"]}`;

function View({ route }) {
  const [section = "jobs", jobId, tab, ...rest] = route;
  if (section === "jobs" && jobId) return html`<${Job} key=${jobId} jobId=${jobId} tab=${tab} rest=${rest} />`;
  if (section === "jobs") return html`<${Jobs} />`;
  if (section === "slots") return html`<${Slots} />`;
  return html`<${Nothing} />`;
}

function Nothing() {
  useReady(true);
  return html`<h1 tabindex="-1">Nothing here</h1><p>There is no such page. <a href="#/">All jobs</a></p>`;
}

function skip(event) {
  event.preventDefault(); // the address behind # is the route
  document.getElementById("main").focus();
}

/** Another page: its name in the window's title, and the reader's focus at its top. */
function useTitleAndFocus([section = "jobs", jobId]) {
  const isFirst = useRef(true);
  useEffect(() => {
    if (!jobId) document.title = `${NAMES[section] ?? "Nothing here"} – Checkdam`;
    if (isFirst.current) {
      isFirst.current = false;
      return;
    }
    scrollTo(0, 0);
    document.querySelector("main h1")?.focus({ preventScroll: true });
  }, [section, jobId]);
}

function Connection() {
  const { isGone, since, end } = useConnection();
  const retry = html`<button type="button" class="small" onClick=${refreshAll}>Try now</button>`;
  if (isGone && end !== null) {
    return html`<div role="status">
      <p class="notice calm gone">
        ${end === "ended"
          ? html`The job has ended, and its server with it. This is what was left.`
          : html`The job was ending, as asked, when its server went away at ${format.clock(since)}: how it ended was not heard here.
              ${" "}<code>checkdam list -a</code> tells.`}
        ${" "}${retry}
      </p>
    </div>`;
  }
  return html`<div role="alert">
    ${isGone &&
    html`<p class="notice bad gone">
      <strong>The server does not answer.</strong> The job’s driver may have ended. The figures are as of
      ${" "}${format.clock(since)}; it is asked again and again, ever less often.
      ${" "}${retry}
    </p>`}
  </div>`;
}

function Token() {
  const go = ({ token }) => {
    setToken(token);
    location.reload();
  };
  return html`<${Question} title="This server needs a token" submit="Log in" onSubmit=${go} onClose=${() => {}}>
    <label>Token <input name="token" type="password" required autocomplete="current-password" /></label>
    <p class="muted">The token is the value of <code>rest.auth.token</code>. This tab keeps it until it is closed.</p>
  <//>`;
}

render(html`<${App} />`, document.getElementById("app"));
