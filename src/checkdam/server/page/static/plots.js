// Plots over time: a canvas for eyes, a caption in words and a table for everyone else.

import { html, useEffect, useRef, useState } from "./html.js";
import * as format from "./format.js";
import { Table, end } from "./widgets.js";

const HEIGHT = 150;
const ROWS = 30;
const dark = matchMedia("(prefers-color-scheme: dark)");

let library = null;
const loadLibrary = () => (library ??= import("./vendor/uplot/uPlot.esm.js").then((module) => module.default));

const colour = (name) => () => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** `points`: [[milliseconds, value]], oldest first; `show` turns a value into words. */
export function Plot({ title, points, show, empty, steps }) {
  const [isOpen, setOpen] = useState(false);
  const [pointed, setPointed] = useState(null); // the place of the point under the reader's mouse
  const values = points.map(([, value]) => value);
  return html`<figure class="plot">
    <figcaption><strong>${title}</strong> <span class="muted">${captionOf(points, show, pointed) ?? empty}</span></figcaption>
    ${values.length > 0 && html`<${Canvas} points=${points} show=${show} steps=${steps} onPoint=${setPointed} />`}
    ${values.length > 0 &&
    html`<details open=${isOpen} onToggle=${(event) => setOpen(event.currentTarget.open)}>
      <summary>As a table</summary>
      ${isOpen &&
      html`<${Table} label=${title} head=${["Time", end("Value")]}>
        ${points
          .slice(-ROWS)
          .reverse()
          .map(([at, value]) => html`<tr key=${at}><td>${format.date(at)}</td><td class="end">${show(value)}</td></tr>`)}
      <//>`}
    </details>`}
  </figure>`;
}

function captionOf(points, show, pointed) {
  if (!points.length) return null;
  if (points[pointed]) return `${show(points[pointed][1])} at ${format.clock(points[pointed][0])}`;
  const values = points.map(([, value]) => value);
  const [least, most] = values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
  return `now ${show(values.at(-1))}, ${show(least)} to ${show(most)}`;
}

function Canvas({ points, show, steps, onPoint }) {
  const place = useRef(null);
  const plot = useRef(null);
  const newest = useRef(points);
  newest.current = points;
  useEffect(() => {
    let isLeft = false;
    const watcher = new ResizeObserver(([entry]) =>
      plot.current?.setSize({ width: Math.floor(entry.contentRect.width), height: HEIGHT }),
    );
    const repaint = () => plot.current?.redraw(false);
    loadLibrary().then((Plotted) => {
      if (isLeft) return;
      plot.current = new Plotted(options(place.current.clientWidth, show, steps, onPoint), columns(newest.current), place.current);
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
  useEffect(() => plot.current?.setData(columns(points)), [points]);
  return html`<div class="canvas-place" ref=${place} aria-hidden="true"></div>`;
}

const columns = (points) => [points.map(([at]) => at / 1000), points.map(([, value]) => value)];

function options(width, show, steps, onPoint) {
  const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    hooks: { setCursor: [(plot) => onPoint(plot.cursor.idx ?? null)] },
    cursor: { sync: { key: "time" }, drag: { x: true, y: false } },
    scales: { y: { range: (_, least, most) => [0, most > 0 ? most * 1.1 : 1] } },
    axes: [
      { ...axis, size: 28, space: 70, values: (_, splits) => splits.map((at) => format.clock(at * 1000)) },
      { ...axis, size: 64, space: 34, ...(steps && { incrs: steps }), values: (_, splits) => splits.map((value) => show(value)) },
    ],
    series: [
      { value: (_, at) => (at === null ? "" : format.clock(at * 1000)), label: "at" },
      {
        label: "is",
        stroke: colour("--plot"),
        fill: colour("--plot-fill"),
        width: 1.5,
        points: { size: 4 },
        value: (_, value) => (value === null ? "" : show(value)),
      },
    ],
  };
}
