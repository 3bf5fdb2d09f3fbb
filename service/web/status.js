"use strict";
// Ask for the page again and put it in the place of the old one. What is open stays open, focus and selection stay.
const pause = document.getElementById("pause"), lost = document.getElementById("lost");
let paused = false, missed = 0;
pause.hidden = false;
pause.addEventListener("click", () => {
  paused = !paused;
  pause.textContent = paused ? "go on" : "pause";
  pause.setAttribute("aria-pressed", String(paused));
});
function put(page) {
  const old = document.getElementById("live"), fresh = page.getElementById("live");
  for (const each of fresh.querySelectorAll("details[id]")) {
    const before = document.getElementById(each.id);
    if (before !== null) each.open = before.open;
  }
  // Where nothing has changed nothing is touched, so that a screen reader hears of a state only once.
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
        lost.textContent = "It does not answer any more: it has ended, or the way to it is broken. What is below is the last that it said.";
        lost.hidden = false;
      }
    }
  }
  setTimeout(look, 2000);
}
// A link to a step leads into a plan that may be folded.
function reveal() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const plan = target && target.closest("details");
  if (plan && !plan.open) { plan.open = true; target.scrollIntoView(); }
}
addEventListener("hashchange", reveal);
reveal();
setTimeout(look, 2000);
