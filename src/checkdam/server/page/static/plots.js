// Plots over time: a canvas for eyes, a caption in words and a table for everyone else. All share one time axis.

import { html, useEffect, useRef, useState } from "./html.js";
import * as format from "./format.js";
import { MARKS, SPANS, eventsShown, range, showLast, unzoom, useTimeAxis, zoomTo } from "./time_axis.js";
import { Table, end } from "./widgets.js";

const HEIGHT = 150;
const ROWS = 30;
const NEAR = 6; // pixels between the mouse and a mark that it points to
const DAY = 86_400_000;
const dark = matchMedia("(prefers-color-scheme: dark)");

let library = null;
const loadLibrary = () => (library ??= import("./vendor/uplot/uPlot.esm.js").then((module) => module.default));

const colour = (name) => () => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Steps between the marks of an axis: 1, 2 and 5 times a power of ten, which every form writes in few digits. */
const DECIMAL = Array.from({ length: 36 }, (_, at) => [1, 2, 5][at % 3] * 10 ** (Math.floor(at / 3) - 2));

/** The same below a minute, then those of a clock; in milliseconds. */
export const OF_TIME = [
  ...DECIMAL.filter((step) => step <= 20_000),
  ...[30, 60, 120, 300, 600, 1800, 3600, 7200, 21_600, 86_400].map((seconds) => 1000 * seconds),
];

/**
 * `points`: [[milliseconds, value]], oldest first, a null value breaks the line; `show` turns a value into words.
 * `most`: the greatest values beside the averages in `points`, at the same moments.
 */
export function Plot({ title, points, most, show, empty, steps = DECIMAL }) {
  const [isOpen, setOpen] = useState(false);
  const [pointed, setPointed] = useState(null); // what is under the reader's mouse
  const { range: shown } = useTimeAxis();
  const inside = ([at, value]) => value !== null && at >= shown[0] && at <= shown[1];
  const visible = points.filter(inside);
  const words = captionOf(visible, (most ?? points).filter(inside), show) ?? (points.length ? "nothing in this time" : empty);
  return html`<figure class="plot">
    <figcaption><strong>${title}</strong> <span class="muted">${pointedOf(points, show, pointed) ?? words}</span></figcaption>
    ${points.length > 0 && html`<${Canvas} points=${points} most=${most} show=${show} steps=${steps} onPoint=${setPointed} />`}
    ${points.length > 0 &&
    html`<details open=${isOpen} onToggle=${(event) => setOpen(event.currentTarget.open)}>
      <summary>As a table</summary>
      ${isOpen &&
      html`<${Table} label=${title} head=${["Time", end("Value")]}>
        ${visible
          .slice(-ROWS)
          .reverse()
          .map(([at, value]) => html`<tr key=${at}><td>${format.date(at)}</td><td class="end">${show(value)}</td></tr>`)}
      <//>`}
    </details>`}
  </figure>`;
}

function pointedOf(points, show, pointed) {
  const [at, value] = points[pointed?.at] ?? [];
  if (value === undefined || value === null) return null;
  return `${show(value)} at ${format.clock(at)}${pointed.mark ? `, ${MARKS[pointed.mark.kind][1]}` : ""}`;
}

function captionOf(points, most, show) {
  if (!points.length) return null;
  const least = points.reduce((low, [, value]) => Math.min(low, value), Infinity);
  const greatest = most.reduce((high, [, value]) => Math.max(high, value), -Infinity);
  return `last ${show(points.at(-1)[1])}, ${show(least)} to ${show(greatest)}`;
}

/** Which stretch of time all plots show, and the events in it: as buttons, a legend and a table. */
export function TimeAxis() {
  const { range: [from, to], span } = useTimeAxis();
  const [isOpen, setOpen] = useState(false);
  const events = eventsShown();
  const counts = Object.entries(MARKS)
    .map(([kind, [letter, one, many, name]]) => ({ kind, letter, one, many, name, count: events.filter((each) => each.kind === kind).length }))
    .filter(({ count }) => count > 0);
  const short = to - from > DAY ? format.date : format.clock;
  return html`<div class="bar axis">
      <div class="choice" role="group" aria-label="Time on show">
        ${SPANS.map(
          ([words, ms]) =>
            html`<button key=${words} type="button" class="small" aria-pressed=${ms === span} onClick=${() => showLast(ms)}>${words}</button>`,
        )}
      </div>
      <span class="muted">
        ${short(from)} – ${short(to)}${span === null ? ", zoomed" : ""}
        ${span === null && html`${" "}<button type="button" class="small plain" onClick=${unzoom}>Follow again</button>`}
      </span>
      <span class="muted hint">Drag in a plot to zoom, double click to follow again.</span>
    </div>
    ${counts.length > 0 &&
    html`<details class="events" open=${isOpen} onToggle=${(event) => setOpen(event.currentTarget.open)}>
      <summary>
        ${counts.map(
          ({ kind, letter, one, many, name, count }) =>
            html`<span key=${kind} class="mark"><i aria-hidden="true" style=${{ color: `var(${name})` }}>${letter}</i> ${format.number(count)} ${count === 1 ? one : many}</span>${" "}`,
        )}
      </summary>
      ${isOpen &&
      html`<${Table} label="Events on show" head=${["Time", "Event"]}>
        ${events.map((event) => html`<tr key=${`${event.at} ${event.text}`}><td>${format.date(event.at)}</td><td><span class="words">${event.text}</span></td></tr>`)}
      <//>`}
    </details>`}`;
}

function Canvas({ points, most, show, steps, onPoint }) {
  const place = useRef(null);
  const plot = useRef(null);
  const newest = useRef(null);
  newest.current = columns(points, most);
  const refresh = () => plot.current?.setData(newest.current);
  useTimeAxis(refresh);
  useEffect(() => {
    let isLeft = false;
    const watcher = new ResizeObserver(([entry]) =>
      plot.current?.setSize({ width: Math.floor(entry.contentRect.width), height: HEIGHT }),
    );
    const repaint = () => plot.current?.redraw(false);
    loadLibrary().then((Plotted) => {
      if (isLeft) return;
      plot.current = new Plotted(options(place.current.clientWidth, show, steps, onPoint), newest.current, place.current);
      watcher.observe(place.current);
      dark.addEventListener("change", repaint);
    });
    return () => {
      isLeft = true;
      watcher.disconnect();
      dark.removeEventListener("change", repaint);
      plot.current?.destroy();
      plot.current = null;
    };
  }, []);
  useEffect(refresh, [points, most]);
  return html`<div class="canvas-place" ref=${place} aria-hidden="true"></div>`;
}

const columns = (points, most) => [
  points.map(([at]) => at / 1000),
  points.map(([, value]) => value),
  most ? most.map(([, value]) => value) : points.map(() => null),
];

/** A moment on the axis in as few digits as the stretch on show needs. */
function tick(seconds) {
  const [from, to] = range();
  const whole = format.date(seconds * 1000);
  if (to - from > DAY) return whole.slice(5, 16);
  return to - from > 600_000 ? whole.slice(11, 16) : whole.slice(11, 19);
}

function options(width, show, steps, onPoint) {
  const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
  const line = { points: { size: 4 }, label: "" };
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    hooks: {
      setCursor: [(plot) => onPoint(plot.cursor.idx === null || plot.cursor.left < 0 ? null : { at: plot.cursor.idx, mark: markAt(plot) })],
      setSelect: [zoom],
      draw: [drawMarks],
    },
    cursor: {
      sync: { key: "time" },
      drag: { x: true, y: false, setScale: false },
      bind: { dblclick: () => () => unzoom() },
    },
    scales: {
      x: { range: () => range().map((ms) => ms / 1000) },
      y: { range: (_, least, most) => [0, Number.isFinite(most) && most > 0 ? most * 1.15 : 1] },
    },
    axes: [
      { ...axis, size: 28, space: 76, values: (_, splits) => splits.map(tick) },
      { ...axis, size: 64, space: 18, incrs: steps, values: (_, splits) => splits.map((value) => show(value).replace(/\.0+(?=\D|$)/, "")) },
    ],
    series: [
      {},
      { ...line, stroke: colour("--plot"), fill: colour("--plot-fill"), width: 1.5 },
      { ...line, stroke: colour("--plot"), width: 0.5, points: { show: false } },
    ],
  };
}

function zoom(plot) {
  const { left, width } = plot.select;
  if (width < NEAR) return;
  const [from, to] = [left, left + width].map((at) => 1000 * plot.posToVal(at, "x"));
  plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  zoomTo(from, to);
}

function markAt(plot) {
  const distance = ({ at }) => Math.abs(plot.valToPos(at / 1000, "x") - plot.cursor.left);
  return eventsShown().find((event) => distance(event) <= NEAR) ?? null;
}

/** A line for every event on show, and its letter on top where there is room. */
function drawMarks(plot) {
  const { ctx, bbox } = plot;
  const ratio = devicePixelRatio;
  ctx.save();
  ctx.lineWidth = ratio;
  ctx.font = `bold ${11 * ratio}px system-ui`;
  ctx.textAlign = "center";
  ctx.textBaseline = "top";
  let free = -Infinity;
  for (const { at, kind } of eventsShown().reverse()) {
    const [letter, , , name] = MARKS[kind] ?? ["?", "", "", "--muted"];
    const x = Math.round(plot.valToPos(at / 1000, "x", true));
    const hasRoom = x - free > 10 * ratio;
    ctx.strokeStyle = ctx.fillStyle = colour(name)();
    ctx.setLineDash([3 * ratio, 3 * ratio]);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top + (hasRoom ? 13 * ratio : 0));
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    if (!hasRoom) continue;
    ctx.fillText(letter, x, bbox.top);
    free = x;
  }
  ctx.restore();
}
