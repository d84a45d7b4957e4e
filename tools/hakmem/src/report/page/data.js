// data.js - what the page was given, how numbers are said, how elements are made: with text nodes, never with markup.
const get = (id) => document.getElementById(id);
const data = JSON.parse(get("data").textContent);
const { graph, sites } = data;

const nameOf = (call) => graph.names[graph.functions[call][0]] || "(code without a name)";
const fileOf = (call) => graph.files[graph.functions[call][1]];
const moduleOf = (call) => graph.modules[graph.functions[call][2]];

// The measures, in the order of the controls; `unit` says how a number of them is said.
const MEASURES = [
  { key: "live", title: "Live bytes", unit: bytes, of: "of what is live" },
  { key: "allocated", title: "Allocated bytes", unit: bytes, of: "of what was allocated" },
  { key: "count", title: "Allocations", unit: count, of: "of all allocations" },
  { key: "temporary", title: "Temporary", unit: count, of: "of all temporary blocks" },
  { key: "pinned", title: "Pinned bytes", unit: bytes, of: "of what is pinned" },
];

function bytes(number) {
  if (number < 1024) return `${Math.round(number)} bytes`;
  const units = ["KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  for (number /= 1024; number >= 1023.95 && unit + 1 < units.length; unit++) number /= 1024;
  return `${number.toFixed(1)} ${units[unit]}`;
}

function count(number) {
  if (number < 1e5) return Math.round(number).toLocaleString("en");
  if (number < 1e6) return (Math.round(number / 1e3) * 1e3).toLocaleString("en");
  return number < 1e9 ? `${(number / 1e6).toFixed(2)} million` : `${(number / 1e9).toFixed(2)} billion`;
}

function share(part, whole) {
  if (!part || !whole) return "0%";
  const percent = (part / whole) * 100;
  return percent < 0.1 ? "<0.1%" : `${percent.toFixed(percent < 9.95 ? 1 : 0)}%`;
}

function duration(us) {
  const short = (value, unit) => `${value < 9.95 && value % 1 > 0.05 ? value.toFixed(1) : value.toFixed(0)} ${unit}`;
  if (us < 1e3) return `${us} µs`;
  if (us < 1e6) return short(us / 1e3, "ms");
  if (us < 120e6) return short(us / 1e6, "s");
  return us < 7200e6 ? short(us / 60e6, "min") : short(us / 3600e6, "h");
}

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

function svg(tag, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

function bar(part, whole, kind) {
  const made = svg("svg", { class: `bar ${kind}`, "aria-hidden": "true" });
  made.append(svg("rect", { width: `${whole ? (part / whole) * 100 : 0}%`, height: "100%" }));
  return made;
}
