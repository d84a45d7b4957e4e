// page.js - sorting, filtering and quicker tooltips. The page says all that it knows without it.
(() => {
  "use strict";
  const get = (id) => document.getElementById(id);
  const table = get("table");
  if (!table) return;
  const rows = [...table.querySelectorAll("tbody.row")];
  const suite = [...table.tBodies]; // the headings of the groups among them
  const [controls, find, order, only, all, shown] = ["controls", "find", "order", "only", "all", "shown"].map(get);
  controls.hidden = false;

  const text = (row) => (row.querySelector("th").textContent + " " + row.dataset.profiles).toLowerCase();
  const texts = new Map(rows.map((row) => [row, text(row)]));

  function arrange() {
    const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const row of rows) {
      const fits = words.every((word) => texts.get(row).includes(word));
      row.hidden = !fits || (only.checked && row.dataset.worse !== "1");
      count += !row.hidden;
    }
    const key = order.value;
    if (key === "suite") {
      table.append(...suite);
    } else {
      table.append(...[...rows].sort((a, b) => b.dataset[key] - a.dataset[key]));
    }
    // A heading is shown in the suite's order, and if any of its rows is.
    let heading = null;
    for (const body of suite) {
      if (body.classList.contains("group")) {
        heading = body;
        heading.hidden = true;
      } else if (heading && !body.hidden && key === "suite") {
        heading.hidden = false;
      }
    }
    shown.textContent = count === rows.length ? "" : `${count} of ${rows.length} rows`;
  }
  for (const control of [find, order, only]) control.addEventListener("input", arrange);
  controls.addEventListener("submit", (event) => event.preventDefault());
  all.addEventListener("click", () => {
    const details = rows.filter((row) => !row.hidden).map((row) => row.querySelector("details"));
    const open = details.some((each) => !each.open);
    for (const each of details) each.open = open;
    all.textContent = open ? "Close all figures" : "Open all figures";
  });
  // The browser may have kept what was typed before a reload.
  arrange();

  const tip = document.createElement("div");
  tip.id = "tip";
  tip.hidden = true;
  tip.setAttribute("aria-hidden", "true");
  document.body.append(tip);
  document.addEventListener("pointerover", (event) => {
    const mark = event.target.closest ? event.target.closest("use") : null;
    const title = mark && mark.querySelector("title");
    if (title) {
      mark.dataset.title = title.textContent;
      title.remove(); // or the browser shows its own as well, later
    }
    tip.hidden = !(mark && mark.dataset.title);
    if (tip.hidden) return;
    tip.textContent = mark.dataset.title;
    const box = mark.getBoundingClientRect();
    const middle = box.left + box.width / 2 - tip.offsetWidth / 2;
    const left = Math.max(4, Math.min(middle, document.documentElement.clientWidth - tip.offsetWidth - 4));
    tip.style.left = `${left + window.scrollX}px`;
    tip.style.top = `${box.top + window.scrollY - tip.offsetHeight - 5}px`;
  });
})();
