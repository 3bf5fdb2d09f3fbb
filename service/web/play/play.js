"use strict";
// Send the job and the changes after each edit, and draw the result. The URL's fragment has the same state.
const at = (id) => document.getElementById(id);
const job = at("job"), changes = at("changes"), example = at("example"), sink = at("sink"), state = at("state");
const examples = JSON.parse(at("examples").textContent);
const editors = { job, changes };
let result = null, wanted = null, chosen = null, wrong = {}, sent = "", busy = false, timer = 0, written = "";

// The state in the URL.
async function through(bytes, stream) {
  return new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(stream)).arrayBuffer());
}
async function packed(value) {
  const bytes = await through(new TextEncoder().encode(JSON.stringify(value)), new CompressionStream("deflate-raw"));
  let text = "";
  for (const each of bytes) text += String.fromCharCode(each);
  return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}
async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (each) => each.charCodeAt(0));
  return JSON.parse(new TextDecoder().decode(await through(bytes, new DecompressionStream("deflate-raw"))));
}
function current() {
  return { job: job.value, changes: changes.value, sink: wanted };
}
function show(values) {
  job.value = String(values.job ?? "");
  changes.value = String(values.changes ?? "");
  wanted = values.sink ?? null;
  for (const each of Object.values(editors)) each.scrollTop = 0;
  chosen = null;
  edited(0);
}
async function fromUrl() {
  const text = location.hash.slice(1);
  if (text === written) return;
  written = text;
  example.selectedIndex = 0;
  let values = examples[0];
  try {
    if (text) {
      values = await unpacked(text);
      example.selectedIndex = examples.findIndex((each) => each.job === values.job && each.changes === values.changes);
    }
  } catch {
    state.textContent = "The link is incomplete";
  }
  show(values);
}

// Requests: only one at a time, and then the latest text.
function edited(wait = 300) {
  for (const each of Object.keys(editors)) number(each);
  clearTimeout(timer);
  timer = setTimeout(run, wait);
}
async function run() {
  const values = current(), body = JSON.stringify(values);
  if (busy || body === sent) return;
  busy = true;
  sent = body;
  written = await packed(values);
  history.replaceState(null, "", `#${written}`);
  const slow = setTimeout(() => { state.textContent = "running…"; }, 400);
  try {
    const answer = await fetch("result", { method: "POST", headers: { "Content-Type": "application/json" }, body });
    if (!answer.ok) throw new Error(answer.status === 413 ? "the text is too long for this page" : `HTTP ${answer.status}`);
    result = await answer.json();
  } catch (error) {
    sent = "";
    const lost = error instanceof TypeError;
    result = { error: { of: "run", line: 0, text: lost ? "rowkind play no longer responds: start it again" : error.message } };
  }
  clearTimeout(slow);
  state.textContent = "";
  busy = false;
  draw();
  if (sent && JSON.stringify(current()) !== sent) edited(0);
}

// Drawing.
function element(tag, text, style) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (style) made.className = style;
  return made;
}
function number(name) {
  const lines = editors[name].previousElementSibling, many = editors[name].value.split("\n").length;
  while (lines.children.length > many) lines.lastChild.remove();
  while (lines.children.length < many) lines.append(element("span", lines.children.length + 1));
}
function paint() {
  const batch = chosen === null ? null : result.batches[chosen];
  for (const name of Object.keys(editors)) {
    const [first, last] = (name === "changes" && batch && batch.lines) || [0, -1];
    [...editors[name].previousElementSibling.children].forEach((each, place) => {
      each.className = place + 1 === wrong[name] ? "bad" : place + 1 >= first && place + 1 <= last ? "cause" : "";
    });
  }
  for (const row of at("result").querySelectorAll("tbody tr")) {
    row.classList.toggle("chosen", chosen !== null && row.dataset.batch === String(chosen));
  }
  for (const place of at("plan").querySelectorAll(".emitted")) {
    const [inserted, retracted] = (batch && batch.steps[place.dataset.step]) || [0, 0];
    place.replaceChildren();
    if (inserted) place.append(element("span", `+${inserted} `, "plus"));
    if (retracted) place.append(element("span", `−${retracted} `, "minus"));
    if (inserted || retracted) place.append("emitted");
    place.closest("article").classList.toggle("marked", inserted + retracted > 0);
  }
  const lines = batch && batch.lines;
  at("chosen").textContent = !batch ? "" : !lines ? "after the end of the changes"
    : lines[0] === lines[1] ? `after line ${lines[0]}` : `after lines ${lines[0]}–${lines[1]}`;
}
function cell(value) {
  if (value === undefined) return element("td", "");
  if (value === null) return element("td", "NULL", "null");
  const made = element("td", typeof value === "string" ? value : JSON.stringify(value), typeof value === "number" ? "number" : "");
  made.title = made.textContent;
  return made;
}
function table(id, head, rows, empty) {
  const top = element("thead"), body = element("tbody"), line = element("tr");
  line.append(...head.map((each, place) => {
    const below = rows.length ? rows[0].children[place] : null;
    return element("th", each, below && below.className === "number" ? "number" : "");
  }));
  top.append(line);
  if (!rows.length) body.append(element("tr"));
  if (!rows.length) body.firstChild.append(element("td", empty, "empty"));
  body.append(...rows);
  at(id).replaceChildren(...(rows.length ? [top] : []), body);
}
function changeRow(change) {
  const row = element("tr"), lines = result.batches[change.batch].lines, first = element("td"), link = element("button");
  link.type = "button";
  link.textContent = lines ? (lines[0] === lines[1] ? lines[0] : `${lines[0]}–${lines[1]}`) : "end";
  row.dataset.batch = change.batch;
  row.title = "Show the steps that emitted changes in this batch";
  first.append(link);
  row.append(first, element("td", change.op, change.op[0] === "+" ? "plus" : "minus"));
  row.append(...result.columns.map((name) => cell(change.row[name])));
  return row;
}
function plainRow(values) {
  const row = element("tr");
  row.append(...result.columns.map((name) => cell(values[name])));
  return row;
}
function draw() {
  const error = result.error;
  wrong = error ? { [error.of]: error.line } : {};
  for (const name of ["job", "changes", "run"]) {
    const place = at(`error.${name}`), own = error && error.of === name;
    place.hidden = !own;
    place.textContent = own ? (error.line ? `line ${error.line}: ` : "") + error.text : "";
  }
  if (result.sinks && result.sinks.length) {
    // The user may have chosen another sink since the request.
    const own = result.sinks.includes(wanted) ? wanted : result.sink;
    sink.replaceChildren(...result.sinks.map((each) => new Option(each, each, false, each === own)));
    at("sinks").hidden = result.sinks.length < 2;
  }
  if (!result.plan) {
    // With an error in the job, the last result stays.
    at("notes").hidden = !at("plan").children.length;
    at("notes").textContent = "This is the result before the error.";
    chosen = null;
    result.batches = [];
    for (const each of at("result").querySelectorAll("tbody tr")) each.removeAttribute("data-batch");
    paint();
    return;
  }
  at("notes").hidden = !result.notes.length;
  at("notes").textContent = result.notes.join("\n");
  const open = new Set([...at("plan").querySelectorAll("details[open]")].map((each) => each.id));
  at("plan").innerHTML = result.plan;
  for (const each of at("plan").querySelectorAll("details")) each.open = open.has(each.id);
  table("result", ["line", "op", ...result.columns], result.changes.map(changeRow), "no changes");
  table("rows", result.columns, result.rows.map(plainRow), "no rows");
  at("count").textContent = `${result.rows.length} row${result.rows.length === 1 ? "" : "s"}`;
  at("hint").textContent = result.changes.length ? "choose one to see the steps that caused it" : "";
  if (chosen !== null && !result.batches[chosen]) chosen = null;
  paint();
}

// Events.
for (const each of Object.values(editors)) {
  each.addEventListener("input", () => { chosen = null; wrong = {}; edited(); });
  each.addEventListener("scroll", () => { each.previousElementSibling.scrollTop = each.scrollTop; });
}
sink.addEventListener("change", () => { wanted = sink.value; chosen = null; edited(0); });
example.addEventListener("change", () => show(examples[example.selectedIndex]));
at("result").addEventListener("click", (event) => {
  const row = event.target.closest("tr[data-batch]");
  if (!row) return;
  chosen = chosen === Number(row.dataset.batch) ? null : Number(row.dataset.batch);
  paint();
});
at("plan").addEventListener("click", (event) => {
  // A link to a step must not replace the state in the URL.
  const link = event.target.closest("a");
  if (!link) return;
  event.preventDefault();
  const target = at(decodeURIComponent(link.hash.slice(1)));
  if (target) target.scrollIntoView({ block: "center" });
});
at("share").addEventListener("click", async () => {
  const text = await packed(current());
  written = text;
  history.replaceState(null, "", `#${text}`);
  try {
    await navigator.clipboard.writeText(location.href);
    state.textContent = "copied";
  } catch {
    state.textContent = "copy the address of this page";
  }
});
addEventListener("hashchange", fromUrl);
example.append(...examples.map((each) => new Option(each.name)));
written = null;
fromUrl();
