// Where the nodes of a graph go: layers by the longest way from a source, an order within each that crosses few edges,
// places that keep neighbours in line. Plain data in, plain data out.

const PASSES = 8;

/**
 * `nodes`: [{id}], `edges`: [{from, to}] without cycles. The answer has `x` and `y` of each node's middle in units of
 * the size asked for, along the flow first: `{places: Map(id → {along, across}), bends: Map(edge → [{along, across}])}`.
 */
export function arrange(nodes, edges, { along, across }) {
  const layerOf = layering(nodes, edges);
  const { layers, links, chains } = withDummies(nodes, edges, layerOf);
  order(layers, links);
  const offsets = spread(layers, links, across);
  const place = (item) => ({ along: item.layer * along, across: offsets.get(item) });
  const byId = new Map(layers.flat().filter((item) => item.id !== null).map((item) => [item.id, item]));
  const depth = layers.length ? (layers.length - 1) * along : 0;
  const all = [...offsets.values()];
  return {
    places: new Map([...byId].map(([id, item]) => [id, place(item)])),
    bends: new Map([...chains].map(([edge, items]) => [edge, items.map(place)])),
    depth,
    breadth: all.length ? Math.max(...all) - Math.min(...all) : 0,
  };
}

function layering(nodes, edges) {
  const inputs = new Map(nodes.map((node) => [node.id, []]));
  for (const edge of edges) if (inputs.has(edge.to) && inputs.has(edge.from)) inputs.get(edge.to).push(edge.from);
  const found = new Map();
  const visit = (id, above) => {
    if (found.has(id)) return found.get(id);
    if (above.has(id)) return 0; // a cycle cannot be; if it is, the picture is still drawn
    above.add(id);
    const layer = Math.max(-1, ...inputs.get(id).map((input) => visit(input, above))) + 1;
    above.delete(id);
    found.set(id, layer);
    return layer;
  };
  for (const node of nodes) visit(node.id, new Set());
  return found;
}

/** An edge over several layers passes through a dummy in each, so that it has a way of its own. */
function withDummies(nodes, edges, layerOf) {
  const layers = [];
  const add = (id, layer) => {
    const item = { id, layer };
    (layers[layer] ??= []).push(item);
    return item;
  };
  const items = new Map(nodes.map((node) => [node.id, add(node.id, layerOf.get(node.id))]));
  const links = [];
  const chains = new Map();
  for (const edge of edges) {
    const [from, to] = [items.get(edge.from), items.get(edge.to)];
    if (!from || !to) continue;
    const chain = [from];
    for (let layer = from.layer + 1; layer < to.layer; layer += 1) chain.push(add(null, layer));
    chain.push(to);
    for (let at = 1; at < chain.length; at += 1) links.push([chain[at - 1], chain[at]]);
    chains.set(edge, chain);
  }
  return { layers: layers.map((layer) => layer ?? []), links, chains };
}

function neighbours(links, side) {
  const found = new Map();
  for (const link of links) {
    const [item, other] = side === "before" ? [link[1], link[0]] : link;
    if (!found.has(item)) found.set(item, []);
    found.get(item).push(other);
  }
  return found;
}

const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

function order(layers, links) {
  const sides = { before: neighbours(links, "before"), after: neighbours(links, "after") };
  for (let pass = 0; pass < PASSES; pass += 1) {
    const isDown = pass % 2 === 0;
    for (const layer of isDown ? layers : [...layers].reverse()) {
      const rank = new Map();
      for (const other of layers) other.forEach((item, at) => rank.set(item, at));
      const near = sides[isDown ? "before" : "after"];
      const wish = new Map(
        layer.map((item, at) => [item, near.has(item) ? mean(near.get(item).map((other) => rank.get(other))) : at]),
      );
      layer.sort((a, b) => wish.get(a) - wish.get(b));
    }
  }
}

/** Each item near the mean of its neighbours, none closer than `gap` to the next; two edges side by side need less. */
function spread(layers, links, gap) {
  const at = new Map();
  const room = (a, b) => (a.id === null && b.id === null ? gap / 4 : gap);
  const pack = (layer, wishes) => {
    const placed = [];
    layer.forEach((item, index) => {
      const least = index ? placed[index - 1] + room(layer[index - 1], item) : -Infinity;
      placed.push(Math.max(wishes[index], least));
    });
    const drift = mean(placed.map((value, index) => value - wishes[index])); // share what pushing has cost
    layer.forEach((item, index) => at.set(item, placed[index] - drift));
  };
  for (const layer of layers) if (layer.length) pack(layer, layer.map((_, index) => (index - (layer.length - 1) / 2) * gap));
  const sides = [neighbours(links, "before"), neighbours(links, "after")];
  for (let pass = 0; pass < PASSES; pass += 1) {
    const near = sides[pass % 2];
    for (const layer of pass % 2 ? [...layers].reverse() : layers) {
      if (!layer.length) continue;
      pack(
        layer,
        layer.map((item) => (near.has(item) ? mean(near.get(item).map((other) => at.get(other))) : at.get(item))),
      );
    }
  }
  const least = Math.min(...at.values());
  for (const [item, value] of at) at.set(item, value - least);
  return at;
}

const LETTER = 7.4; // the width of a letter of a label, and the height of a line
const LINE = 15;
const ALONG = [0.5, 0.42, 0.58, 0.34, 0.66, 0.26, 0.74, 0.18, 0.82];
const ASIDE = [0, -LINE, LINE, -2 * LINE, 2 * LINE];

/**
 * `edges` with `at`, the middle of each label: on its edge or beside it, over no node and no other label. A label for
 * which there is no room has none; whoever points at the edge is told it all the same.
 */
export function placeLabels(edges, nodes) {
  const taken = nodes.map((box) => ({ ...box }));
  const boxAround = ({ x, y }, label) => {
    const half = (label.length * LETTER) / 2 + 3;
    return { left: x - half, right: x + half, top: y - LINE / 2, bottom: y + LINE / 2 };
  };
  const isFree = (box) =>
    box.left >= 0 &&
    taken.every((other) => box.right <= other.left || box.left >= other.right || box.bottom <= other.top || box.top >= other.bottom);
  return edges.map((edge) => {
    for (const aside of ASIDE) {
      for (const t of ALONG) {
        const on = edge.along(t);
        const at = { x: on.x, y: on.y + aside };
        const box = boxAround(at, edge.label ?? "");
        if (!isFree(box)) continue;
        taken.push(box);
        return { ...edge, at };
      }
    }
    return { ...edge, at: null };
  });
}
