// Speaks to the server this page came from. Paths are relative, so a prefix before the page is no trouble.

const TOKEN = "checkdam.token";
const PATIENCE = 20_000;

/** The server answered, and refused. `words` is what to show, `details` the rest of what it said. */
export class Refused extends Error {
  constructor(status, text) {
    const [words, details] = splitMessage(text);
    super(words);
    this.status = status;
    this.words = words;
    this.details = details;
  }
}

/** The server did not answer. */
export class Unreachable extends Error {}

/** Lines before a stack trace are for people, the rest for those who look closer. */
export function splitMessage(text) {
  const lines = String(text ?? "").trim().split("\n");
  const isTrace = (line) => /^(Traceback \(most recent|\s+(at|File) |<Exception on server side)/.test(line);
  const at = lines.findIndex(isTrace);
  if (at === 0) return [lines.at(-1).trim(), lines.join("\n")];
  if (at > 0) return [lines.slice(0, at).join("\n").trim(), lines.slice(at).join("\n")];
  return [lines.join("\n"), ""];
}

export function setToken(token) {
  sessionStorage.setItem(TOKEN, token);
}

export async function ask(path, { method = "GET", body } = {}) {
  const text = await askForText(path, { method, body });
  return text === "" ? {} : parse(text, path);
}

const OF_STATE = /\/(state|operator-state|timers|diff)\//;

/** An answer's JSON. Keys and values of state keep whole numbers that a double cannot hold, as BigInt. */
export function parse(text, path) {
  return OF_STATE.test(path) ? JSON.parse(text, exact) : JSON.parse(text);
}

function exact(_, value, context) {
  const isInexact = typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value);
  return isInexact && /^-?\d+$/.test(context?.source ?? "") ? BigInt(context.source) : value;
}

export async function askForText(path, { method = "GET", body, patience = PATIENCE } = {}) {
  const headers = { Accept: "application/json" };
  const token = sessionStorage.getItem(TOKEN);
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  let text;
  try {
    response = await fetch(new URL(path, document.baseURI), {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: AbortSignal.timeout(patience),
      cache: "no-store",
    });
    text = await response.text();
  } catch (failure) {
    throw new Unreachable(String(failure));
  }
  if (!response.ok) throw new Refused(response.status, errorText(text, response));
  return text;
}

function errorText(text, response) {
  try {
    const { errors } = JSON.parse(text);
    if (Array.isArray(errors) && errors.length) return errors.join("\n");
  } catch {
    // not one of ours: a proxy's page, say
  }
  return `The server answered ${response.status} ${response.statusText}`.trim();
}

/** `path` with every part made safe to stand in an address. */
export const address = (...parts) => parts.map((part) => encodeURIComponent(part)).join("/");

export const query = (values) => {
  const kept = Object.entries(values).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return kept.length ? `?${new URLSearchParams(kept)}` : "";
};
