// Values as people read them, in Flink's forms.

const pad = (value, width = 2) => String(value).padStart(width, "0");

const isMissing = (value) => value === null || value === undefined || Number.isNaN(Number(value)) || value < 0;

/** `yyyy-MM-dd HH:mm:ss.SSS` in the reader's time zone, which the head of the page names. */
export function date(ms, missing = "-") {
  if (isMissing(ms) || ms === 0) return missing;
  const at = new Date(Number(ms));
  if (Number.isNaN(at.getTime())) return missing;
  const day = `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}`;
  return `${day} ${clock(ms)}.${pad(at.getMilliseconds(), 3)}`;
}

export function clock(ms) {
  const at = new Date(Number(ms));
  return `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
}

/** The reader's time zone, as in `UTC+01:00`, and its name. */
export function zone(at = new Date()) {
  const minutes = -at.getTimezoneOffset();
  const [hours, rest] = [Math.floor(Math.abs(minutes) / 60), Math.abs(minutes) % 60];
  const offset = minutes === 0 ? "UTC" : `UTC${minutes < 0 ? "−" : "+"}${pad(hours)}:${pad(rest)}`;
  return { offset, name: Intl.DateTimeFormat().resolvedOptions().timeZone ?? offset };
}

/** `850ms`, `12s 40ms`, `3m 5s 12ms`, `2h 4m 8s`, `1d 2h 3m 4s`. */
export function duration(ms, missing = "-") {
  if (isMissing(ms)) return missing;
  const value = Number(ms);
  if (value < 10 && !Number.isInteger(value)) return `${value.toFixed(value < 1 ? 2 : 1)}ms`;
  const whole = Math.round(value);
  const seconds = Math.floor(whole / 1000) % 60;
  const minutes = Math.floor(whole / 60_000) % 60;
  const hours = Math.floor(whole / 3_600_000) % 24;
  const days = Math.floor(whole / 86_400_000);
  if (days > 0) return `${days}d ${hours}h ${minutes}m ${seconds}s`;
  if (hours > 0) return `${hours}h ${minutes}m ${seconds}s`;
  const rest = whole % 1000 === 0 ? "" : ` ${whole % 1000}ms`;
  if (minutes > 0) return `${minutes}m ${seconds}s${rest}`;
  if (seconds > 0) return `${seconds}s${rest}`;
  return `${whole}ms`;
}

/** Powers of 1000 with one decimal, as in the terminal; plain bytes under 1000. */
export function bytes(count, missing = "-") {
  if (isMissing(count)) return missing;
  let value = Number(count);
  if (value < 999.5) return `${Math.round(value)} B`;
  const units = ["kB", "MB", "GB", "TB", "PB", "EB"];
  let unit = -1;
  do {
    value /= 1000;
    unit += 1;
  } while (value >= 999.95 && unit < units.length - 1);
  return `${value.toFixed(1)} ${units[unit]}`;
}

export function number(value, missing = "-") {
  if (isMissing(value)) return missing;
  const digits = Math.abs(value) < 10 ? 2 : Math.abs(value) < 100 ? 1 : 0;
  return Number(value).toLocaleString("en", { maximumFractionDigits: digits }).replaceAll(",", "\u202f");
}

/** A count that may be an estimate, marked as such. */
export const held = (value, isExact, missing = "-", mark = "≈") => (isMissing(value) ? missing : `${isExact === false ? `${mark} ` : ""}${number(value)}`);

/** A count in little room: `12.3k`, `4.56M`. */
export function short(value, missing = "-") {
  if (isMissing(value)) return missing;
  if (value < 10_000) return number(value);
  for (const [size, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (value >= size * 0.9995) return `${(value / size).toPrecision(3)}${letter}`;
  }
  return number(value);
}

export function percent(ratio, missing = "-") {
  return isMissing(ratio) ? missing : `${Math.round(Number(ratio) * 100)}%`;
}

const NO_WATERMARK = -9_000_000_000_000_000; // Flink's smallest long, as a double
const END_OF_TIME = 9_000_000_000_000_000;

export function watermark(value, show = date) {
  if (value === null || value === undefined || value === "" || Number.isNaN(Number(value))) return "none";
  if (Number(value) <= NO_WATERMARK) return "none";
  if (Number(value) >= END_OF_TIME) return "end of time";
  return Math.abs(value) < 100_000_000_000 ? String(value) : show(value);
}

/** A slot by its number; with its host where it listens on a port, and not on a socket in a directory. */
export function slot(number, endpoint) {
  const host = /^([^/]+):\d+$/.exec(endpoint ?? "")?.[1];
  return host ? `slot ${number} on ${host}` : `slot ${number}`;
}

/** A long text without its middle: names differ at both ends. */
export function middleCut(text, most) {
  if (text.length <= most) return text;
  const head = Math.ceil((most - 1) / 2);
  return `${text.slice(0, head)}…${text.slice(text.length - (most - 1 - head))}`;
}

/** What an operator is called: its name, or its uid where it was given no name. */
export const operatorTitle = (vertex) => (vertex["is-named"] || !vertex.uid ? vertex.name : vertex.uid);

/** A window of time as its start and end, another kind of window as JSON. */
export function windowText(value) {
  const fields = Object.keys(value ?? {}).join();
  if (fields === "start,end") return `${watermark(value.start)} – ${watermark(value.end)}`;
  return fields === "id" ? "global" : json(value);
}

/** A value of state as JSON on one line. */
export const json = (value, indent) => (value === undefined ? "" : JSON.stringify(value, bare, indent));

/** A BigInt as the number it is; text where the browser cannot write that. */
const bare = (_, value) => (typeof value !== "bigint" ? value : (JSON.rawJSON?.(String(value)) ?? String(value)));

export const plural = (count, word) => `${number(count)} ${word}${Number(count) === 1 ? "" : "s"}`;
