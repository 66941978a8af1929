// The job drawn: operators as links to their rows, exchanges as labelled edges beneath.

import { html, useLayoutEffect, useMemo, useRef, useState } from "./html.js";
import * as format from "./format.js";
import { arrange } from "./layout.js";

const NODE = { width: 180, height: 128 }; // as in pictures.css
const GAP = { least: 74, most: 120, across: 28, down: 52 };

export function busyClass(ratio) {
  if (ratio === null || ratio === undefined || Number.isNaN(Number(ratio))) return "busy-0";
  return `busy-${Math.min(4, Math.floor(Math.max(0, ratio) * 5))}`;
}

function edgesOf(plan) {
  return (plan?.nodes ?? []).flatMap((node) =>
    (node.inputs ?? []).map((input) => ({ from: input.id, to: node.id, label: input.ship_strategy })),
  );
}

function useWidth() {
  const place = useRef(null);
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const watcher = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    watcher.observe(place.current);
    setWidth(place.current.clientWidth);
    return () => watcher.disconnect();
  }, []);
  return [place, width];
}

export function Graph({ job, chosen, hrefOf }) {
  const [place, width] = useWidth();
  const shape = JSON.stringify([job.vertices.map((vertex) => vertex.id), job.plan?.nodes]);
  const picture = useMemo(() => draw(job, width), [shape, width]);
  const names = new Map(job.vertices.map((vertex) => [vertex.id, vertex.name]));
  return html`<div class="graph scroll" ref=${place} role="region" aria-label="The job’s operators and exchanges" tabindex="0">
    ${width > 0 &&
    html`<div class="canvas" style=${{ width: `${picture.width}px`, height: `${picture.height}px` }}>
      <svg width=${picture.width} height=${picture.height} aria-hidden="true" focusable="false">
        <defs>
          <marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
            <path d="M0 0L8 4L0 8z" class="arrow" />
          </marker>
        </defs>
        ${picture.edges.map((edge) => html`<path key=${edge.key} class="edge" d=${edge.path} marker-end="url(#arrow)" />`)}
        ${picture.edges.map(
          (edge) => html`<text key=${edge.key} x=${edge.middle.x} y=${edge.middle.y} class="edge-label">${edge.label}</text>`,
        )}
      </svg>
      <ol>
        ${job.vertices.map(
          (vertex) =>
            html`<li key=${vertex.id} style=${picture.places.get(vertex.id)}>
              <${Node}
                vertex=${vertex}
                href=${hrefOf(vertex)}
                isChosen=${vertex.id === chosen}
                inputs=${edgesOf(job.plan)
                  .filter((edge) => edge.to === vertex.id)
                  .map((edge) => `${edge.label} from ${names.get(edge.from)}`)}
              />
            </li>`,
        )}
      </ol>
    </div>`}
  </div>`;
}

function Node({ vertex, href, isChosen, inputs }) {
  const busy = vertex["busy-ratio"];
  const metrics = vertex.metrics ?? {};
  return html`<a href=${href} class="node ${busyClass(busy)}" aria-current=${isChosen ? "true" : null}>
    <strong title=${vertex.name}>${vertex.name}</strong>
    <span class="muted line"
      ><span class="cut">${vertex.kind ?? "operator"}</span><span class="times">×${vertex.parallelism}</span></span
    >
    <span class="line"
      ><span>in ${format.short(metrics["read-records"])}</span><span>out ${format.short(metrics["write-records"])}</span></span
    >
    <span class="line"
      ><span class="meter" aria-hidden="true"
        ><span style=${{ width: `${Math.round(Math.min(1, Math.max(0, busy || 0)) * 100)}%` }}></span></span
      ><span>busy ${format.percent(busy)}</span></span
    >
    <span class="line small"
      ><span>${vertex["is-stateful"] ? `state ${format.bytes(vertex["state-size"])}` : "no state"}</span></span
    >
    <span class="line small muted" title=${format.watermark(vertex.watermark)}
      ><span class="cut">watermark ${format.watermark(vertex.watermark, format.clock)}</span></span
    >
    ${inputs.length > 0 && html`<span class="hidden">, input ${inputs.join(", ")}</span>`}
  </a>`;
}

/** From left to right where that fits, else from top to bottom. */
function draw(job, width) {
  const edges = edgesOf(job.plan);
  const layers = 1 + arrange(job.vertices, edges, { along: 1, across: 1 }).depth;
  const gap = Math.min(GAP.most, Math.floor((width - 4 - layers * NODE.width) / Math.max(1, layers - 1)));
  const fits = layers === 1 || gap >= GAP.least;
  const arranged = arrange(
    job.vertices,
    edges,
    fits
      ? { along: NODE.width + gap, across: NODE.height + GAP.across }
      : { along: NODE.height + GAP.down, across: NODE.width + GAP.across },
  );
  const breadth = (fits ? NODE.height : NODE.width) + arranged.breadth;
  const depth = (fits ? NODE.width : NODE.height) + arranged.depth;
  const whole = fits ? { width: depth, height: breadth } : { width: breadth, height: depth };
  const margin = Math.max(2, (width - whole.width) / 2); // in the middle of the page
  const point = ({ along, across }) =>
    fits
      ? { x: margin + along + NODE.width / 2, y: across + NODE.height / 2 + 2 }
      : { x: margin + across + NODE.width / 2, y: along + NODE.height / 2 + 2 };
  const places = new Map(
    [...arranged.places].map(([id, at]) => {
      const { x, y } = point(at);
      return [id, { left: `${x - NODE.width / 2}px`, top: `${y - NODE.height / 2}px` }];
    }),
  );
  const drawn = [...arranged.bends].map(([edge, bends], index) => route(edge, bends.map(point), fits, index));
  return { width: Math.max(whole.width + 4, fits ? width : whole.width + 2 * margin), height: whole.height + 4, places, edges: drawn };
}

function route(edge, points, isAcross, index) {
  const [half, key] = [isAcross ? NODE.width / 2 : NODE.height / 2, isAcross ? "x" : "y"];
  const ends = points.map((point) => ({ ...point }));
  ends[0][key] += half;
  ends.at(-1)[key] -= half + 2;
  let path = `M${ends[0].x} ${ends[0].y}`;
  for (let at = 1; at < ends.length; at += 1) {
    const [from, to] = [ends[at - 1], ends[at]];
    const turn = (from[key] + to[key]) / 2;
    path += isAcross
      ? `C${turn} ${from.y} ${turn} ${to.y} ${to.x} ${to.y}`
      : `C${from.x} ${turn} ${to.x} ${turn} ${to.x} ${to.y}`;
  }
  const middle = points.length > 2 ? ends[Math.floor(ends.length / 2)] : halfway(ends[0], ends[1]);
  return { key: index, path, label: edge.label, middle: isAcross ? { x: middle.x, y: middle.y - 6 } : middle };
}

const halfway = (a, b) => ({ x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 });
