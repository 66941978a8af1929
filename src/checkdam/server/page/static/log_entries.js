// Lines of a log as entries: a line with time and level, and those that belong to it, such as a traceback.

const HEAD = /^\d{4}-\d\d-\d\dT[\d:.]+Z (DEBUG|INFO|WARN|ERROR|FATAL) /;
const RANK = { DEBUG: 0, INFO: 1, WARN: 2, ERROR: 3, FATAL: 4 };
const MOST = 2000; // entries that are kept
const LONGEST = 20_000; // characters after which an entry goes on in another one

export const EMPTY = { entries: [], hasGap: false, isLoaded: false, error: null, next: 0 };

/** The state of a log with the next part of its lines. */
export function added(before, part) {
  if (before.isLoaded && before.error === null && !part.text && !part["has-gap"]) return before;
  const isAnew = before.isLoaded && part["has-gap"]; // what is between is lost
  const entries = isAnew ? [] : [...before.entries];
  let { next } = before;
  const lines = part.text.split("\n");
  if (lines.at(-1) === "") lines.pop();
  for (const line of lines) {
    const level = HEAD.exec(line)?.[1];
    const last = entries.at(-1);
    const isPart = level === undefined && last?.level && last.text.length < LONGEST;
    if (isPart) entries[entries.length - 1] = { ...last, text: `${last.text}\n${line}` };
    else entries.push({ id: next++, level: level ?? last?.level ?? "", text: line });
  }
  const isCut = entries.length > MOST;
  return {
    entries: isCut ? entries.slice(-MOST) : entries,
    hasGap: before.hasGap || part["has-gap"] || isCut,
    isLoaded: true,
    error: null,
    next,
  };
}

/** Whether an entry has at least this level; "" stands for every level. What has none is always shown. */
export const isShown = (entry, level) => !level || !entry.level || RANK[entry.level] >= RANK[level];
