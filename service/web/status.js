"use strict";
// Fetch the page again and replace the old one. Open parts stay open; focus and selection stay.
const pause = document.getElementById("pause"), lost = document.getElementById("lost");
let paused = false, missed = 0;
pause.hidden = false;
pause.addEventListener("click", () => {
  paused = !paused;
  pause.textContent = paused ? "resume" : "pause";
  pause.setAttribute("aria-pressed", String(paused));
});
// Show the last hour or the last day of the history.
const range = document.querySelector(".range");
document.documentElement.className = "hour";
range.hidden = false;
range.addEventListener("click", ({ target }) => {
  if (!target.dataset.range) return;
  document.documentElement.className = target.dataset.range;
  for (const each of range.children) each.setAttribute("aria-pressed", String(each === target));
});
// The values under the pointer are read from the lines of a chart.
const tip = document.getElementById("tip"), cursor = document.getElementById("cursor");
const grouped = (value, digits) => value.toLocaleString("en", { maximumFractionDigits: digits });
const short = (value) => Math.abs(value) >= 1e9 ? `${grouped(value / 1e9, 1)} G`
  : Math.abs(value) >= 1e6 ? `${grouped(value / 1e6, 1)} M` : grouped(value, value < 10 ? 1 : 0);
const written = {
  rate: (value) => `${short(value)}/s`, rows: (value) => `${short(value)} ${short(value) === "1" ? "row" : "rows"}`, share: (value) => `${grouped(value * 100, 0)}%`,
  seconds: (value) => value < 120 ? `${grouped(value, value < 10 ? 2 : 0)} s` : value < 7200 ? `${grouped(value / 60, 1)} min` : `${grouped(value / 3600, 1)} h`,
  bytes: (value) => value >= 1e9 ? `${grouped(value / 1e9, 1)} GB` : value >= 1e6 ? `${grouped(value / 1e6, 1)} MB` : value >= 1e3 ? `${grouped(value / 1e3, 1)} kB` : `${grouped(value, 0)} B`,
};
function point(event) {
  const chart = event.target.closest && event.target.closest(".chart"), image = chart && chart.querySelector("svg");
  const box = image && image.getBoundingClientRect();
  tip.hidden = cursor.hidden = !box || event.clientX < box.left || event.clientX > box.right;
  if (tip.hidden) return;
  const { width, height } = image.viewBox.baseVal, data = chart.dataset;
  const at = Math.min(width - 1, Math.floor((event.clientX - box.left) / box.width * width));
  const lines = [...image.querySelectorAll(".a, .b")].map((line) => {
    const found = line.getAttribute("d").match(new RegExp(`[ML]${at}\\.5 ([\\d.]+)`));
    const name = data.names.split(",")[line.classList.contains("b") ? 1 : 0];
    return `${name} ${found ? written[data.unit]((height - found[1]) / (height - 3) * data.most) : "no value"}`;
  });
  const time = new Date((data.until - (width - 1 - at) * data.step) * 1000).toISOString().slice(11, 19);
  tip.textContent = [`${time} UTC`, ...lines].join("\n");
  tip.style.top = `${box.bottom + 8}px`;
  tip.style.left = `${Math.max(4, Math.min(event.clientX - tip.offsetWidth / 2, innerWidth - tip.offsetWidth - 4))}px`;
  cursor.style.cssText = `left:${event.clientX}px;top:${box.top}px;height:${box.height}px`;
}
addEventListener("pointermove", point, { passive: true });
addEventListener("scroll", () => { tip.hidden = cursor.hidden = true; }, { passive: true, capture: true });
const boxes = (part) => [...part.querySelectorAll("[role=region][aria-label]")];
function put(page) {
  const old = document.getElementById("live"), fresh = page.getElementById("live");
  for (const each of fresh.querySelectorAll("details[id]")) {
    const before = document.getElementById(each.id);
    if (before !== null) each.open = before.open;
  }
  // Replace only what has changed, so that a screen reader reads out a state only once.
  const state = document.getElementById("state"), next = fresh.querySelector("#state");
  if (state && next && state.innerHTML === next.innerHTML) next.replaceWith(state);
  const links = document.querySelector("nav"), others = page.querySelector("nav");
  if (links.innerHTML !== others.innerHTML) links.replaceWith(others);
  const active = document.activeElement, owner = active && active.closest("details[id]");
  const inside = owner && [...owner.querySelectorAll("summary, a, [tabindex]")].indexOf(active);
  const link = !owner && old.contains(active) && active.getAttribute("href");
  const scrolled = new Map(boxes(old).map((each) => [each.getAttribute("aria-label"), each]));
  const places = boxes(fresh).map((each) => [each, scrolled.get(each.getAttribute("aria-label"))])
    .filter(([, before]) => before).map(([each, before]) => [each, before.scrollLeft, before.scrollTop]);
  old.replaceWith(fresh);
  for (const [each, left, top] of places) each.scrollTo(left, top);
  const again = owner && document.getElementById(owner.id);
  const target = again ? again.querySelectorAll("summary, a, [tabindex]")[inside]
    : link && fresh.querySelector(`a[href="${CSS.escape(link)}"]`);
  if (target) target.focus({ preventScroll: true });
}
async function look() {
  if (!paused && !document.hidden && !String(getSelection())) {
    try {
      const answer = await fetch(location.pathname, { cache: "no-store", signal: AbortSignal.timeout(10000) });
      if (!answer.ok) throw new Error(answer.status);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      put(page);
      document.title = page.title;
      missed = 0;
      lost.hidden = true;
    } catch {
      missed += 1;
      if (missed === 2) {
        lost.textContent = "The server no longer responds: it has stopped, or the connection is broken. The last known status is shown below.";
        lost.hidden = false;
      }
    }
  }
  setTimeout(look, 2000);
}
// A link to a step may point into a folded plan of a folded sink. Unfold both.
function reveal() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  let folded = false;
  for (let each = target && target.closest("details"); each; each = each.parentElement.closest("details")) {
    folded ||= !each.open;
    each.open = true;
  }
  if (folded) target.scrollIntoView();
}
addEventListener("hashchange", reveal);
reveal();
setTimeout(look, 2000);
