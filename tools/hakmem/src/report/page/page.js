// page.js - the rest: links to places, the timeline's cross, what if, dark and light; then all of it is started.
function timelineStart() {
  const plot = get("plot");
  const { moments } = data;
  if (!plot || !moments.length) return;
  const said = get("moment");
  const cross = get("cross");
  const [first, last] = [moments[0][0], moments[moments.length - 1][0]];
  let at = moments.length - 1;
  const show = (next) => {
    at = Math.max(0, Math.min(moments.length - 1, next));
    const [ms, resident, live, free, allocated, faults] = moments[at];
    const x = `${((ms - first) / (last - first)) * 100}%`;
    cross.setAttribute("x1", x);
    cross.setAttribute("x2", x);
    cross.setAttribute("visibility", "visible");
    said.textContent =
      `At ${duration(ms * 1000)}: resident ${bytes(resident)}, live ${bytes(live)}, free ${bytes(free)}; ` +
      `${bytes(allocated)} allocated and ${count(faults)} faults per second`;
  };
  plot.addEventListener("pointermove", (event) => {
    const box = plot.querySelector(".chart").getBoundingClientRect();
    const ms = first + ((event.clientX - box.left) / box.width) * (last - first);
    let near = moments.findIndex((moment) => moment[0] >= ms);
    if (near < 0) near = moments.length - 1;
    if (near > 0 && ms - moments[near - 1][0] < moments[near][0] - ms) near--;
    show(near);
  });
  plot.addEventListener("keydown", (event) => {
    const page = Math.ceil(moments.length / 20);
    const steps = { ArrowLeft: at - 1, ArrowRight: at + 1, PageUp: at - page, PageDown: at + page, Home: 0, End: moments.length - 1 };
    if (!(event.key in steps)) return;
    show(steps[event.key]);
    event.preventDefault();
  });
}

function whatIfStart() {
  const box = get("what-if");
  if (!box) return;
  const radios = box.querySelectorAll("input");
  radios.forEach((radio) => (radio.disabled = false));
  const show = () => {
    let gain = 0;
    for (const radio of radios) {
      if (radio.checked && radio.value !== "kept") gain += Number(radio.closest("tr").dataset[radio.value]);
    }
    const { resident } = data;
    gain = resident ? Math.min(gain, resident) : gain;
    const after = resident ? `: resident ${bytes(resident)} would become ${bytes(resident - gain)}.` : ".";
    get("gain").textContent = gain
      ? `${bytes(gain)} would come back${after}`
      : "Choose what would be done with each place's blocks.";
    get("gain-bar").querySelector(".rest").setAttribute("width", `${resident ? ((resident - gain) / resident) * 100 : 100}%`);
  };
  box.addEventListener("change", show);
  show();
}

function themeStart() {
  const button = get("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  let isDark = system.matches;
  const show = () => {
    document.documentElement.style.colorScheme = isDark ? "dark" : "light";
    button.textContent = isDark ? "Light" : "Dark";
    button.setAttribute("aria-label", isDark ? "Use light colours" : "Use dark colours");
  };
  button.addEventListener("click", () => {
    isDark = !isDark;
    show();
  });
  system.addEventListener("change", () => {
    isDark = system.matches;
    show();
  });
  button.hidden = false;
  show();
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-site]");
  if (!link) return;
  event.preventDefault();
  showSite(Number(link.dataset.site));
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input:not([type=radio]), select, textarea")) return;
  event.preventDefault();
  get("find").focus();
  get("find").select();
});

themeStart();
flameStart();
sitesStart();
timelineStart();
whatIfStart();
