() => {
  // What a screen reader could not name, or not find its way by.
  const found = [];
  const all = (selector) => [...document.querySelectorAll(selector)].filter((each) => each.checkVisibility());
  const start = (element) => element.outerHTML.slice(0, 80);
  const labelOf = (element) => {
    const elsewhere = element.getAttribute("aria-labelledby");
    return element.getAttribute("aria-label") || (elsewhere && document.getElementById(elsewhere)?.textContent);
  };
  for (const each of all("a, button, summary")) {
    if (!(labelOf(each) || each.textContent).trim()) found.push(`no name: ${start(each)}`);
  }
  for (const each of all("input, select")) {
    if (!each.labels?.length && !labelOf(each)) found.push(`no label: ${start(each)}`);
  }
  for (const each of all("nav, [role=region], [role=group], dialog")) {
    if (!labelOf(each)) found.push(`no name: ${start(each)}`);
  }
  for (const table of all("table")) {
    const name = table.caption?.textContent.trim();
    if (!name) found.push("a table without caption");
    if (table.querySelector("thead th:not([scope])")) found.push(`a column without scope: ${name}`);
    if (table.rows[0].cells.length > 2 && !table.querySelector("tbody th[scope=row]")) found.push(`rows without header: ${name}`);
  }
  if (all("h1").length !== 1) found.push(`${all("h1").length} headings of level 1`);
  let before = 0;
  for (const heading of all("h1, h2, h3, h4, h5, h6")) {
    const level = Number(heading.tagName[1]);
    if (level > before + 1) found.push(`level ${level} after ${before}: ${heading.textContent}`);
    before = level;
  }
  for (const landmark of ["main", "header", "nav"]) if (!all(landmark).length) found.push(`no ${landmark}`);
  if (!document.documentElement.lang) found.push("no language");
  const ids = [...document.querySelectorAll("[id]")].map((each) => each.id);
  for (const id of new Set(ids)) if (ids.filter((each) => each === id).length > 1) found.push(`twice the id ${id}`);
  return found;
}
