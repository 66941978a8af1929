() => {
  // What a reader would stumble over: the page wider than the window, text over text, text cut off with no way to read it.
  const found = new Set();
  const quote = (text) => `"${text.trim().replace(/\s+/g, " ").slice(0, 50)}"`;
  const root = document.querySelector("dialog[open]") ?? document.body;
  const wider = document.documentElement.scrollWidth - innerWidth;
  if (wider > 0) found.add(`the page is ${wider} px wider than the window`);

  // Scrolling, unfolding or a title lets one read all of a text that is cut.
  const isExplained = (element) => element.closest("[title], [aria-expanded=false], summary") !== null;
  const clips = (value) => value === "hidden" || value === "clip";
  const scrolls = (value) => value === "auto" || value === "scroll";

  /** The part of a text's box that is seen, or null; tells of text that an ancestor cuts. */
  const seen = (element, box, words) => {
    let { left, top, right, bottom } = box;
    for (let at = element; at && at !== document.body; at = at.parentElement) {
      const style = getComputedStyle(at);
      if (style.display === "inline" || style.display === "contents") continue;
      const x = style.overflowX;
      const y = style.overflowY;
      if (x === "visible" && y === "visible") continue;
      const edge = at.getBoundingClientRect();
      const isCut =
        (clips(x) && (left < edge.left - 1.5 || right > edge.right + 1.5)) ||
        (clips(y) && (top < edge.top - 3 || bottom > edge.bottom + 3));
      if (isCut && !isExplained(element)) found.add(`cut off: ${quote(words)}`);
      if (clips(x) || scrolls(x)) [left, right] = [Math.max(left, edge.left), Math.min(right, edge.right)];
      if (clips(y) || scrolls(y)) [top, bottom] = [Math.max(top, edge.top), Math.min(bottom, edge.bottom)];
      if (left >= right || top >= bottom) return null;
    }
    return { left, top, right, bottom };
  };

  const boxes = [];
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode;
    const element = node.parentElement;
    const words = node.textContent;
    if (!words.trim() || !element.checkVisibility() || element.closest("noscript, option, script, style, .skip")) continue;
    if (element.closest(".hidden, thead") && hiddenForEyes(element)) continue;
    const style = getComputedStyle(element);
    if (clips(style.overflowX) && element.scrollWidth > element.clientWidth + 1 && !isExplained(element)) {
      found.add(`cut off: ${quote(words)}`);
    }
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const box of range.getClientRects()) {
      if (box.width < 1 || box.height < 1) continue;
      const part = seen(element, box, words);
      if (part) boxes.push({ ...part, words, element });
    }
  }

  function hiddenForEyes(element) {
    for (let at = element; at; at = at.parentElement) if (getComputedStyle(at).clipPath === "inset(50%)") return true;
    return false;
  }

  const floats = (element) => {
    for (let at = element; at; at = at.parentElement) {
      if (["sticky", "fixed"].includes(getComputedStyle(at).position)) return true;
    }
    return false;
  };
  const standing = boxes.filter((box) => !floats(box.element)).sort((a, b) => a.top - b.top);
  for (let at = 0; at < standing.length; at += 1) {
    const one = standing[at];
    for (let next = at + 1; next < standing.length && standing[next].top < one.bottom - 3; next += 1) {
      const other = standing[next];
      if (one.element === other.element && one.words === other.words) continue;
      const across = Math.min(one.right, other.right) - Math.max(one.left, other.left);
      const down = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
      if (across > 2 && down > 3) found.add(`over each other: ${quote(one.words)} and ${quote(other.words)}`);
    }
  }
  return [...found];
}
