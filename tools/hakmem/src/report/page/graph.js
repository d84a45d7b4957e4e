// graph.js - the graph of calls. Only bars that are wide enough to be seen become elements, so that any number of stacks
// is drawn at once; what is left out is still in every sum.
const ROW_PX = 21;
const WIDTH_PX_MIN = 1.5;
const BARS_MAX = 6000;
const COLOURS = 7; // of modules; the rest is grey

const flame = {
  box: get("flame"),
  measure: MEASURES[0],
  direction: "down",
  root: 0, // what is as wide as the graph
  focus: 0,
  bars: new Map(), // by node
  hits: null, // calls that were searched for
};

// Modules by what is live in them, or was allocated: the largest have colours.
const colourOf = (() => {
  const weights = graph.modules.map(() => 0);
  const down = tree("down");
  for (const key of ["allocated", "live"]) {
    const { own } = sums(down, key);
    const scale = own.reduce((sum, part) => sum + part, 0) || 1;
    for (let node = 1; node < own.length; node++) {
      for (let at = node; own[node] && at; at = down.parents[at]) {
        weights[graph.functions[down.calls[at]][2]] += own[node] / scale;
      }
    }
  }
  const order = weights.map((weight, module) => [weight, module]).filter(([, module]) => graph.modules[module]);
  order.sort((a, b) => b[0] - a[0]);
  const colours = new Map(order.slice(0, COLOURS).map(([, module], at) => [module, at]));
  for (const [module, colour] of colours) {
    get("modules").append(element("li", {}, element("i", { class: `m${colour}` }), graph.modules[module]));
  }
  if (order.length > COLOURS) get("modules").append(element("li", {}, element("i", { class: "m-" }), "others"));
  return (call) => colours.get(graph.functions[call][2]) ?? "-";
})();

// One of three shades, so that neighbours are told apart.
const shadeOf = (call) => (call * 7) % 3;

function flameSums() {
  return sums(tree(flame.direction), flame.measure.key);
}

function childrenByWidth(shown, total, node) {
  const children = shown.children.subarray(shown.first[node], shown.first[node + 1]);
  return Array.from(children).sort((a, b) => total[b] - total[a]);
}

// Which nodes are seen, with their place: from the root down, wide ones only.
function layout(shown, total, width) {
  const rootPath = pathTo(shown, flame.root);
  const placed = rootPath.map((node, depth) => ({ node, depth, x: 0, width, above: node !== flame.root }));
  if (!total[flame.root]) return placed;
  let least = WIDTH_PX_MIN;
  for (;;) {
    const found = placed.slice();
    const scale = width / total[flame.root];
    const waiting = [{ node: flame.root, x: 0, depth: rootPath.length }];
    while (waiting.length && found.length <= BARS_MAX) {
      const { node, x, depth } = waiting.pop();
      let at = x;
      for (const child of childrenByWidth(shown, total, node)) {
        const wide = total[child] * scale;
        if (wide < least) break; // those that follow are no wider
        found.push({ node: child, depth, x: at, width: wide, above: false });
        waiting.push({ node: child, x: at, depth: depth + 1 });
        at += wide;
      }
    }
    if (found.length <= BARS_MAX) return found;
    least *= 2;
  }
}

function spoken(shown, { own, total }, node) {
  const { unit, of } = flame.measure;
  const self = own[node] && own[node] < total[node] ? `, ${unit(own[node])} itself` : "";
  return `${nameOf(shown.calls[node])}: ${unit(total[node])}, ${share(total[node], total[0])} ${of}${self}`;
}

function draw() {
  const shown = tree(flame.direction);
  const values = flameSums();
  const width = flame.box.clientWidth;
  const placed = layout(shown, values.total, width);
  const bars = document.createDocumentFragment();
  flame.bars = new Map();
  let depth = 0;
  for (const each of placed) {
    const call = shown.calls[each.node];
    const made = document.createElement("div");
    made.className = `m${colourOf(call)} s${shadeOf(call)}${each.above ? " above" : ""}${flame.hits?.has(call) ? " hit" : ""}`;
    made.style.transform = `translate(${each.x}px, ${each.depth * ROW_PX}px)`;
    made.style.width = `${Math.max(each.width - 1, 1)}px`;
    made.setAttribute("role", "treeitem");
    made.setAttribute("aria-level", each.depth + 1);
    made.setAttribute("aria-label", spoken(shown, values, each.node));
    made.tabIndex = -1;
    made.dataset.node = each.node;
    if (each.width > 24) made.textContent = nameOf(call);
    bars.append(made);
    flame.bars.set(each.node, { ...each, made });
    depth = Math.max(depth, each.depth);
  }
  flame.box.classList.toggle("searched", flame.hits !== null);
  flame.box.style.height = `${(depth + 1) * ROW_PX + 4}px`;
  flame.box.replaceChildren(bars);
  if (!placed.length) {
    flame.box.append(element("p", { class: "empty" }, `Nothing to show: no ${flame.measure.title.toLowerCase()} in this profile.`));
  }
  if (!flame.bars.has(flame.focus)) flame.focus = flame.root || placed[0]?.node || 0;
  const first = flame.bars.get(flame.focus);
  if (first) first.made.tabIndex = 0;
  get("whole").disabled = flame.root === 0;
  drawSaid(flame.focus);
  drawFound();
}

// Below the graph: all there is to say of one bar.
function drawSaid(node) {
  const said = get("said");
  const shown = tree(flame.direction);
  if (!node) {
    const { total } = flameSums();
    said.replaceChildren(element("b", {}, `All: ${flame.measure.unit(total[0])}`));
    return;
  }
  const call = shown.calls[node];
  const where = [fileOf(call), moduleOf(call)].filter(Boolean).join(", ");
  const list = element("dl", {});
  for (const measure of MEASURES) {
    const { own, total } = sums(shown, measure.key);
    const self = own[node] && own[node] < total[node] ? `, itself ${measure.unit(own[node])}` : "";
    const text = `${measure.unit(total[node])} (${share(total[node], total[0])})${self}`;
    const kind = measure === flame.measure ? "now" : undefined;
    list.append(element("div", { class: kind }, element("dt", {}, measure.title), element("dd", {}, text)));
  }
  said.replaceChildren(element("b", {}, nameOf(call)), " ", element("span", { class: "place" }, where), list);
}

function drawFound() {
  const found = get("found");
  if (!flame.hits) {
    found.textContent = "";
    return;
  }
  // A found function below another is counted once.
  const shown = tree(flame.direction);
  const { total } = flameSums();
  let sum = 0;
  const inside = new Uint8Array(total.length);
  for (let node = 1; node < total.length; node++) {
    const isHit = flame.hits.has(shown.calls[node]);
    if (isHit && !inside[shown.parents[node]]) sum += total[node];
    inside[node] = isHit || inside[shown.parents[node]] ? 1 : 0;
  }
  const functions = flame.hits.size === 1 ? "1 function" : `${flame.hits.size} functions`;
  found.textContent = `${functions}, ${share(sum, total[0])} ${flame.measure.of}`;
}

function zoom(node) {
  flame.root = node;
  flame.focus = node;
  draw();
  if (node) focusOn(node);
}

function focusOn(node) {
  const next = flame.bars.get(node);
  if (!next) return;
  const last = flame.bars.get(flame.focus);
  if (last) last.made.tabIndex = -1;
  flame.focus = node;
  next.made.tabIndex = 0;
  next.made.focus({ preventScroll: false });
}

function search(text) {
  const wanted = text.trim().toLowerCase();
  flame.hits = wanted ? new Set() : null;
  if (wanted) {
    for (let call = 0; call < graph.functions.length; call++) {
      const place = `${nameOf(call)}\n${fileOf(call)}\n${moduleOf(call)}`;
      if (place.toLowerCase().includes(wanted)) flame.hits.add(call);
    }
  }
  const shown = tree(flame.direction);
  flame.box.classList.toggle("searched", flame.hits !== null);
  for (const [node, { made }] of flame.bars) made.classList.toggle("hit", flame.hits?.has(shown.calls[node]) ?? false);
  drawFound();
}

function flameKeys(event) {
  const shown = tree(flame.direction);
  const at = flame.bars.get(flame.focus);
  if (!at || event.altKey || event.ctrlKey || event.metaKey) return;
  const beside = (step) => {
    const row = [...flame.bars.values()].filter((each) => each.depth === at.depth).sort((a, b) => a.x - b.x);
    return row[row.findIndex((each) => each.node === at.node) + step]?.node;
  };
  const below = () => childrenByWidth(shown, flameSums().total, at.node).find((child) => flame.bars.has(child));
  const moves = {
    ArrowDown: below,
    ArrowUp: () => shown.parents[at.node] || undefined,
    ArrowLeft: () => beside(-1),
    ArrowRight: () => beside(1),
    Home: () => pathTo(shown, at.node)[0],
  };
  if (event.key === "Enter" || event.key === " ") {
    zoom(at.node);
  } else if (event.key === "Escape" || event.key === "Backspace") {
    if (!flame.root) return;
    zoom(shown.parents[flame.root]);
  } else if (moves[event.key]) {
    const next = moves[event.key]();
    if (next !== undefined) focusOn(next);
  } else {
    return;
  }
  event.preventDefault();
}

// The graph with one stack's path in the middle of things: from the sites' table.
function showStack(stack) {
  if (flame.direction !== "down") {
    flame.direction = get("direction").value = "down";
  }
  const shown = tree("down");
  const path = pathTo(shown, shown.leaves[stack]);
  zoom(path[Math.max(path.length - 4, 0)]);
  focusOn(path[path.length - 1]);
  get("graph").scrollIntoView();
}

function flameStart() {
  for (const [at, measure] of MEASURES.entries()) {
    const radio = element("input", { type: "radio", name: "measure", value: measure.key });
    radio.checked = at === 0;
    radio.disabled = !graph[measure.key].some((value) => value > 0);
    get("measures").append(element("label", { class: radio.disabled ? "off" : undefined }, radio, measure.title));
  }
  if (!graph.live.some((value) => value > 0)) {
    const usable = document.querySelector("#measures input:not(:disabled)");
    if (usable) usable.checked = true;
    flame.measure = MEASURES.find((measure) => measure.key === usable?.value) ?? MEASURES[0];
  }
  get("measures").addEventListener("change", (event) => {
    flame.measure = MEASURES.find((measure) => measure.key === event.target.value);
    if (!flameSums().total[flame.root]) flame.root = 0;
    draw();
  });
  get("direction").addEventListener("change", (event) => {
    flame.direction = event.target.value;
    flame.root = flame.focus = 0;
    draw();
  });
  get("find").addEventListener("input", (event) => search(event.target.value));
  get("whole").addEventListener("click", () => zoom(0));
  get("graph-controls").addEventListener("submit", (event) => event.preventDefault());
  const nodeOf = (event) => Number(event.target.closest("[data-node]")?.dataset.node ?? 0);
  flame.box.addEventListener("click", (event) => {
    const node = nodeOf(event);
    if (node) zoom(node === flame.root ? tree(flame.direction).parents[node] : node);
  });
  flame.box.addEventListener("keydown", flameKeys);
  flame.box.addEventListener("pointerover", (event) => drawSaid(nodeOf(event) || flame.focus));
  flame.box.addEventListener("pointerleave", () => drawSaid(flame.focus));
  flame.box.addEventListener("focusin", (event) => drawSaid(nodeOf(event)));
  for (const id of ["graph-controls", "flame", "said"]) get(id).hidden = false;
  draw();
  let width = flame.box.clientWidth;
  new ResizeObserver(() => {
    if (flame.box.clientWidth === width) return;
    width = flame.box.clientWidth;
    draw();
  }).observe(flame.box);
}
