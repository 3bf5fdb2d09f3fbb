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
  old.replaceWith(fresh);
  const again = owner && document.getElementById(owner.id);
  const target = again ? again.querySelectorAll("summary, a, [tabindex]")[inside]
    : link && fresh.querySelector(`a[href="${CSS.escape(link)}"]`);
  if (target) target.focus({ preventScroll: true });
}
async function look() {
  if (!paused && !document.hidden && !String(getSelection())) {
    try {
      const answer = await fetch("./", { cache: "no-store", signal: AbortSignal.timeout(10000) });
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
// A link to a step may point into a folded plan. Unfold that plan.
function reveal() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const plan = target && target.closest("details");
  if (plan && !plan.open) { plan.open = true; target.scrollIntoView(); }
}
addEventListener("hashchange", reveal);
reveal();
setTimeout(look, 2000);
