// The job drawn: operators as links to their rows, exchanges as labelled edges beneath.

import { html, useLayoutEffect, useMemo, useRef, useState } from "./html.js";
import * as format from "./format.js";
import { lag } from "./health.js";
import { arrange, placeLabels } from "./layout.js";

const NODE = { width: 184, height: 146 }; // as in pictures.css
const [PADDING, SCROLLBAR] = [24, 16];
const NARROWEST = 0.7; // smaller letters could not be read
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
  const zoom = useZoom(place);
  const names = new Map(job.vertices.map((vertex) => [vertex.id, format.operatorTitle(vertex)]));
  const fit = Math.min(1, Math.max(NARROWEST, width / picture.width)); // on a phone all of it rather than a part
  const scale = zoom.scale * fit;
  const frame = { height: `${picture.height * fit + PADDING + (picture.width * fit > width ? SCROLLBAR : 0)}px` }; // however zoomed
  const scaled = { width: `${picture.width * scale}px`, height: `${picture.height * scale}px` };
  const whole = { width: `${picture.width}px`, height: `${picture.height}px`, transform: `scale(${scale})` };
  return html`<div class="graph-frame">
    <div class="graph scroll" style=${frame} ref=${place} role="region" aria-label="The job’s operators and exchanges" tabindex="0" ...${zoom.handlers}>
      ${width > 0 &&
      html`<div class="scaled" style=${scaled}>
        <div class="canvas" style=${whole}>
          <svg width=${picture.width} height=${picture.height} aria-hidden="true" focusable="false">
            <defs>
              <marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
                <path d="M0 0L8 4L0 8z" class="arrow" />
              </marker>
            </defs>
            ${picture.edges.map((edge) => html`<path key=${edge.key} class="edge" d=${edge.path} marker-end="url(#arrow)"><title>${edge.label}</title></path>`)}
            ${picture.edges.map(
              (edge) => edge.at && html`<text key=${edge.key} x=${edge.at.x} y=${edge.at.y} class="edge-label">${edge.label}</text>`,
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
        </div>
      </div>`}
    </div>
    <div class="zoom" role="group" aria-label="Zoom">
      <button type="button" class="small" aria-label="Smaller" title="Smaller (-)" disabled=${zoom.scale <= SMALLEST} onClick=${zoom.smaller}>−</button>
      <button type="button" class="small" aria-label="Larger" title="Larger (+)" disabled=${zoom.scale >= LARGEST} onClick=${zoom.larger}>+</button>
      <button type="button" class="small" title="As drawn at first (0)" onClick=${zoom.reset}>Reset</button>
      <span class="muted small" role="status">${format.percent(zoom.scale)}</span>
    </div>
  </div>`;
}

const ROOM = 146; // for the name within a node, and the size of its letters
const LETTERS = 0.9;
let pen = null;

/** A name as far as it fits into a node: whole, or without its middle. */
function fitted(name) {
  if (!pen) {
    pen = document.createElement("canvas").getContext("2d");
    pen.font = `bold ${LETTERS * parseFloat(getComputedStyle(document.documentElement).fontSize)}px system-ui, sans-serif`;
  }
  let cut = name;
  for (let most = Math.min(name.length, 60); most > 4 && pen.measureText(cut).width > ROOM; most -= 1) cut = format.middleCut(name, most - 1);
  return cut;
}

function Node({ vertex, href, isChosen, inputs }) {
  const busy = vertex["busy-ratio"];
  const metrics = vertex.metrics ?? {};
  const title = format.operatorTitle(vertex);
  const cut = fitted(title);
  const watermark = format.watermark(vertex.watermark);
  return html`<a href=${href} class="node ${busyClass(busy)}" aria-current=${isChosen ? "true" : null}>
      <strong title=${title}
        >${cut === title ? title : html`<span aria-hidden="true">${cut}</span><span class="hidden">${title}</span>`}</strong
      >
      <span class="muted line"
        ><span class="cut" title=${vertex.kind ?? null}>${vertex.kind ?? "operator"}</span><span class="times">×${vertex.parallelism}</span></span
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
      <span class="line small muted"
        ><span>watermark ${watermark === "none" ? "none" : ""}</span><span>${lag(vertex["watermark-lag"])}</span></span
      >
      <span class="line small muted"><span>${watermark === "none" ? "" : watermark}</span></span>
      ${inputs.length > 0 && html`<span class="hidden">, input ${inputs.join(", ")}</span>`}
    </a>
    ${cut !== title && html`<span class="whole-name" aria-hidden="true">${title}</span>`}`;
}

const [SMALLEST, LARGEST, STEP] = [0.3, 3, 1.25];
const limited = (scale) => Math.min(LARGEST, Math.max(SMALLEST, scale));

/**
 * Zooming by buttons, the keys + - 0, the wheel with Ctrl and two fingers; moving by dragging with the mouse, and by
 * what scrolls anyway: the wheel, one finger, the arrow keys. The point zoomed at stays where it is.
 */
function useZoom(place) {
  const [scale, setScale] = useState(1);
  const now = useRef({ scale: 1, anchor: null, fingers: new Map(), apart: 0, grip: null }).current;
  const zoom = (factor, at) => {
    const box = place.current.getBoundingClientRect();
    const [x, y] = at ? [at.clientX - box.left, at.clientY - box.top] : [box.width / 2, box.height / 2];
    const next = limited(now.scale * factor);
    now.anchor = { x, y, left: ((place.current.scrollLeft + x) / now.scale) * next - x, top: ((place.current.scrollTop + y) / now.scale) * next - y };
    now.scale = next;
    setScale(next);
  };
  const reset = () => {
    now.scale = 1;
    now.anchor = { left: 0, top: 0 };
    setScale(1);
    place.current.scrollTo(0, 0);
  };
  useLayoutEffect(() => {
    if (now.anchor) place.current.scrollTo(now.anchor.left, now.anchor.top);
    now.anchor = null;
  }, [scale]);
  useLayoutEffect(() => {
    const turned = (event) => {
      if (!event.ctrlKey && !event.metaKey) return; // the page scrolls as usual
      event.preventDefault();
      zoom(Math.exp(-event.deltaY / 300), event);
    };
    const element = place.current;
    element.addEventListener("wheel", turned, { passive: false });
    return () => element.removeEventListener("wheel", turned);
  }, []);
  const down = (event) => {
    if (event.pointerType === "touch") {
      now.fingers.set(event.pointerId, event);
      now.apart = distance(now.fingers);
    } else if (event.button === 0 && !event.target.closest("a")) {
      event.currentTarget.setPointerCapture(event.pointerId);
      now.grip = { x: event.clientX + place.current.scrollLeft, y: event.clientY + place.current.scrollTop };
    }
  };
  const move = (event) => {
    if (now.grip) place.current.scrollTo(now.grip.x - event.clientX, now.grip.y - event.clientY);
    if (!now.fingers.has(event.pointerId)) return;
    now.fingers.set(event.pointerId, event);
    const apart = distance(now.fingers);
    if (now.apart && apart) {
      const [one, other] = [...now.fingers.values()];
      zoom(apart / now.apart, { clientX: (one.clientX + other.clientX) / 2, clientY: (one.clientY + other.clientY) / 2 });
    }
    now.apart = apart;
  };
  const up = (event) => {
    now.grip = null;
    now.fingers.delete(event.pointerId);
    now.apart = distance(now.fingers);
  };
  const press = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const act = { "+": () => zoom(STEP), "=": () => zoom(STEP), "-": () => zoom(1 / STEP), 0: reset }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  };
  return {
    scale,
    reset,
    larger: () => zoom(STEP),
    smaller: () => zoom(1 / STEP),
    handlers: { onPointerDown: down, onPointerMove: move, onPointerUp: up, onPointerCancel: up, onKeyDown: press },
  };
}

/** How far apart two fingers are; 0 for any other number of fingers. */
function distance(fingers) {
  if (fingers.size !== 2) return 0;
  const [one, other] = [...fingers.values()];
  return Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY);
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
  const routes = [...arranged.bends].map(([edge, bends], index) => route(edge, bends.map(point), fits, index));
  const nodes = [...arranged.places.values()].map((at) => {
    const { x, y } = point(at);
    return { left: x - NODE.width / 2, right: x + NODE.width / 2, top: y - NODE.height / 2, bottom: y + NODE.height / 2 };
  });
  const drawn = placeLabels(routes, nodes);
  return { width: Math.max(whole.width + 4, fits ? width : whole.width + 2 * margin), height: whole.height + 4, places, edges: drawn };
}

/** The path of an edge, and `along(t)`: its points from 0, the start, to 1. */
function route(edge, points, isAcross, index) {
  const [half, key] = [isAcross ? NODE.width / 2 : NODE.height / 2, isAcross ? "x" : "y"];
  const ends = points.map((point) => ({ ...point }));
  ends[0][key] += half;
  ends.at(-1)[key] -= half + 2;
  const curves = [];
  for (let at = 1; at < ends.length; at += 1) {
    const [from, to] = [ends[at - 1], ends[at]];
    const turn = (from[key] + to[key]) / 2;
    curves.push([from, { ...from, [key]: turn }, { ...to, [key]: turn }, to]);
  }
  const path = curves.reduce((all, [, a, b, to]) => `${all}C${a.x} ${a.y} ${b.x} ${b.y} ${to.x} ${to.y}`, `M${ends[0].x} ${ends[0].y}`);
  const along = (t) => {
    const place = Math.min(curves.length - 1, Math.floor(t * curves.length));
    return onCurve(curves[place], t * curves.length - place);
  };
  return { key: index, path, label: edge.label, along };
}

function onCurve([a, b, c, d], t) {
  const u = 1 - t;
  const part = (key) => u * u * u * a[key] + 3 * u * u * t * b[key] + 3 * u * t * t * c[key] + t * t * t * d[key];
  return { x: part("x"), y: part("y") };
}
