// sites.js - the table of places: sorted, filtered, some rows at a time; a row opens to its stacks and lifetimes.
const ROWS_FIRST = 25;
const ROWS_STEP = 100;
const STACKS_SHOWN = 3;

const siteName = (site) => (sites.function[site] === null ? "(code without a name)" : nameOf(sites.function[site]));
const callerName = (site) => (sites.caller[site] === null ? "" : nameOf(sites.caller[site]));

// 51.1–72.9 MiB, 800.0 KiB–1.2 MiB.
function interval(low, high) {
  const [from, to] = [bytes(low).split(" "), bytes(high).split(" ")];
  return from[1] === to[1] ? `${from[0]}–${to.join(" ")}` : `${from.join(" ")}–${to.join(" ")}`;
}

// Column by column: its title, what it is sorted by, what stands in a cell, what else (an interval, a bar).
const COLUMNS = [
  { key: "name", title: "place", by: siteName, isText: true },
  { key: "live", title: "live", by: (site) => sites.live[site], text: (value) => (value ? bytes(value) : "–"), low: "live_low", high: "live_high" },
  { key: "blocks", title: "blocks", by: (site) => sites.blocks[site], text: (value) => (value ? count(value) : "–") },
  { key: "allocated", title: "allocated", by: (site) => sites.allocated[site], text: bytes, low: "allocated_low", high: "allocated_high" },
  { key: "calls", title: "calls", by: (site) => sites.calls[site], text: count },
  {
    key: "temporary",
    title: "temporary",
    by: (site) => (sites.calls[site] ? sites.temporary[site] / sites.calls[site] : 0),
    text: (value) => (value ? share(value, 1) : "0%"),
  },
  {
    key: "lifetime",
    title: "median life",
    by: (site) => sites.lifetime_us[site] ?? -1,
    text: (value) => (value < 0 ? "–" : duration(value)),
  },
  { key: "pinned", title: "pins", by: (site) => sites.pinned[site], text: (value) => (value ? bytes(value) : "–") },
  { key: "threads", title: "threads", by: (site) => sites.threads[site], text: (value) => (value ? String(value) : "–") },
];

const table = {
  box: get("sites-table"),
  column: COLUMNS[1],
  isRising: false,
  rows: sites.live.map((_, site) => site),
  shown: ROWS_FIRST,
  open: new Set(),
};

function arrange() {
  const words = get("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const text = (site) => `${siteName(site)} ${sites.place[site]} ${callerName(site)}`.toLowerCase();
  table.rows = sites.live.map((_, site) => site).filter((site) => {
    const all = words.length ? text(site) : "";
    return words.every((word) => all.includes(word));
  });
  const { by, isText } = table.column;
  const keys = sites.live.map((_, site) => by(site));
  const compare = isText ? (a, b) => keys[a].localeCompare(keys[b]) : (a, b) => keys[a] - keys[b];
  table.rows.sort((a, b) => (table.isRising ? compare(a, b) : compare(b, a)) || a - b);
  get("filtered").textContent = words.length ? `${table.rows.length} of ${sites.live.length} places` : "";
  drawRows();
}

function drawRows() {
  const body = document.createDocumentFragment();
  for (const site of table.rows.slice(0, table.shown)) {
    body.append(row(site));
    if (table.open.has(site)) body.append(details(site));
  }
  table.box.tBodies[0].replaceChildren(body);
  const left = table.rows.length - table.shown;
  const more = get("sites-more");
  more.replaceChildren();
  if (left > 0) {
    const button = element("button", { type: "button" }, `${Math.min(left, ROWS_STEP)} more of ${left}`);
    button.addEventListener("click", () => {
      table.shown += ROWS_STEP;
      drawRows();
    });
    more.append(button);
  } else if (!table.rows.length) {
    more.append("No place fits.");
  }
}

function row(site) {
  const isOpen = table.open.has(site);
  const opener = element("button", { type: "button", class: "opener", "aria-expanded": String(isOpen), "data-opens": site });
  opener.append(element("span", { class: "name" }, siteName(site)));
  const place = [sites.place[site], callerName(site) && `from ${callerName(site)}`].filter(Boolean).join(", ");
  const made = element("tr", { "data-row": site }, element("th", { scope: "row" }, opener, " ", element("span", { class: "place" }, place)));
  for (const column of COLUMNS.slice(1)) {
    const value = column.by(site);
    const cell = element("td", { class: column === table.column ? "strong" : undefined }, column.text(value));
    if (column.low && value) cell.append(element("small", {}, interval(sites[column.low][site], sites[column.high][site])));
    made.append(cell);
  }
  return made;
}

function details(site) {
  const cell = element("td", { colspan: COLUMNS.length });
  cell.append(element("p", {}, `${count(sites.samples[site])} samples stand behind these numbers.`));
  const stacks = sites.stacks[site].slice().sort((a, b) => graph.live[b] - graph.live[a] || graph.allocated[b] - graph.allocated[a]);
  const down = tree("down");
  for (const stack of stacks.slice(0, STACKS_SHOWN)) {
    const calls = pathTo(down, down.leaves[stack]).map((node) => nameOf(down.calls[node]));
    const list = element("ol", { class: "stack" }, ...calls.reverse().map((name) => element("li", {}, name)));
    const show = element("button", { type: "button" }, "Show in the graph");
    show.addEventListener("click", () => showStack(stack));
    const said = `${bytes(graph.live[stack])} live, ${bytes(graph.allocated[stack])} allocated `;
    cell.append(element("div", { class: "one" }, element("p", {}, said, show), list));
  }
  if (stacks.length > STACKS_SHOWN) cell.append(element("p", { class: "note" }, `and ${stacks.length - STACKS_SHOWN} more ways to get there`));
  if (sites.lifetimes[site].some((part) => part > 0)) cell.append(histogram(sites.lifetimes[site]));
  return element("tr", { class: "details" }, cell);
}

function histogram(buckets) {
  const ends = data.bucket_ends_us;
  const used = buckets.map((part, at) => at).filter((at) => buckets[at] > 0);
  const [first, last] = [used[0], used[used.length - 1]];
  const whole = buckets.reduce((sum, part) => sum + part, 0);
  const most = Math.max(...buckets);
  const rows = [];
  for (let at = first; at <= last; at++) {
    const label = at < ends.length ? `≤ ${duration(ends[at])}` : `> ${duration(ends[ends.length - 1])}`;
    const value = element("td", {}, `${count(buckets[at])} (${share(buckets[at], whole)})`);
    rows.push(element("tr", {}, element("th", { scope: "row" }, label), element("td", { class: "wide" }, bar(buckets[at], most, "rate")), value));
  }
  return element("table", { class: "histogram" }, element("caption", {}, "How long its freed blocks lived"), element("tbody", {}, ...rows));
}

function drawHeads() {
  const heads = COLUMNS.map((column) => {
    const isNow = column === table.column;
    const order = isNow ? (table.isRising ? "ascending" : "descending") : undefined;
    const button = element("button", { type: "button" }, column.title);
    button.addEventListener("click", () => {
      table.isRising = isNow ? !table.isRising : Boolean(column.isText);
      table.column = column;
      drawHeads();
      arrange();
      table.box.tHead.querySelectorAll("button")[COLUMNS.indexOf(column)].focus();
    });
    return element("th", { scope: "col", "aria-sort": order }, button);
  });
  table.box.tHead.rows[0].replaceChildren(...heads);
}

// Opens a site's row wherever it is.
function showSite(site) {
  get("filter").value = "";
  table.open.add(site);
  arrange();
  const at = table.rows.indexOf(site);
  if (at >= table.shown) {
    table.shown = Math.ceil((at + 1) / ROWS_STEP) * ROWS_STEP;
    drawRows();
  }
  const opener = table.box.querySelector(`[data-opens="${site}"]`);
  opener.scrollIntoView({ block: "center" });
  opener.focus({ preventScroll: true });
}

function sitesStart() {
  table.box.tBodies[0].addEventListener("click", (event) => {
    const opener = event.target.closest("[data-opens]");
    if (!opener) return;
    const site = Number(opener.dataset.opens);
    if (!table.open.delete(site)) table.open.add(site);
    drawRows();
    table.box.querySelector(`[data-opens="${site}"]`).focus();
  });
  get("filter").addEventListener("input", () => {
    table.shown = ROWS_FIRST;
    arrange();
  });
  get("sites-controls").addEventListener("submit", (event) => event.preventDefault());
  get("sites-controls").hidden = false;
  drawHeads();
  arrange(); // the browser may have kept what was typed before a reload
}
