"use strict";
// A poll replaces a part of the page. Opened details and the focus stay.
document.addEventListener("htmx:beforeSwap", (event) => {
  const target = event.detail.target;
  const open = [...target.querySelectorAll("details[open][id]")].map((details) => details.id);
  const rows = new Set([...target.querySelectorAll("tr[id]")].map((row) => row.id));
  const focus = document.activeElement && document.activeElement.id;
  document.addEventListener("htmx:afterSettle", () => {
    const part = document.getElementById("live-part");
    if (!part) return;
    for (const id of open) {
      const details = document.getElementById(id);
      if (details) details.open = true;
    }
    if (rows.size) part.querySelectorAll("tr[id]").forEach((row) => row.classList.toggle("new", !rows.has(row.id)));
    if (focus && document.activeElement === document.body) {
      const element = document.getElementById(focus);
      if (element) element.focus({ preventScroll: true });
    }
    drawn();
  }, { once: true });
});
// The title of the browser's tab tells the number of problems.
const title = document.title;
function drawn() {
  const part = document.getElementById("live-part");
  watch();
  drawAll(document);
  const problems = part && Number(part.dataset.problems || 0);
  document.title = problems ? `(${problems}) ${title}` : title;
}
document.addEventListener("DOMContentLoaded", drawn);
window.addEventListener("resize", () => drawAll(document));
document.addEventListener("toggle", (event) => drawAll(event.target), true);
let answeredAt = Date.now();
document.addEventListener("htmx:afterRequest", (event) => {
  const part = document.getElementById("live-part");
  const state = document.getElementById("live");
  if (!part || !state) return;
  // An answer replaces the part, or leaves it as it is: then it was right before the failures, too.
  const failed = event.detail.failed === true;
  if (failed && !part.dataset.state) part.dataset.state = state.textContent;
  part.classList.toggle("unreachable", failed);
  if (failed) {
    const seconds = Math.round((Date.now() - answeredAt) / 1000);
    state.textContent = `no answer for ${seconds} s`;
    return;
  }
  answeredAt = Date.now();
  if (event.detail.xhr.status === 204) watch();
  if (part.dataset.state && event.detail.xhr.status === 204) state.textContent = part.dataset.state;
  delete part.dataset.state;
});
// A page that nobody sees asks for nothing.
document.addEventListener("htmx:beforeRequest", (event) => {
  if (document.hidden) event.preventDefault();
});
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-range]");
  if (!button) return;
  try { sessionStorage.setItem("range", button.dataset.range); } catch { /* it is off */ }
  drawAll(document);
});
// Lists follow what is typed into their filter.
let waiting;
function filtered(form) {
  const fields = new URLSearchParams();
  for (const [name, value] of new FormData(form)) if (value) fields.set(name, value);
  const address = `${form.getAttribute("action")}?${fields}`;
  history.replaceState(null, "", address);
  fields.set("part", "new");
  htmx.ajax("GET", `${form.getAttribute("action")}?${fields}`, { target: "#live-part", swap: "outerHTML" });
}
document.addEventListener("input", (event) => {
  const form = event.target.closest("form.typed");
  if (!form) return;
  clearTimeout(waiting);
  waiting = setTimeout(filtered, 150, form);
});
document.addEventListener("submit", (event) => {
  if (!event.target.matches("form.typed")) return;
  event.preventDefault();
  clearTimeout(waiting);
  filtered(event.target);
});
// Of the fields of a search only those count that belong to where it begins.
function beginsWith() {
  const start = document.getElementById("start");
  document.querySelectorAll("[data-with]").forEach((field) => {
    field.hidden = field.dataset.with !== start.value;
    field.querySelector("input").disabled = field.hidden;
  });
}
document.addEventListener("DOMContentLoaded", beginsWith);
document.addEventListener("change", (event) => { if (event.target.id === "start") beginsWith(); });
// The search: "/" from anywhere, arrows and Enter to go.
document.addEventListener("keydown", (event) => {
  const box = document.getElementById("search"), hits = document.getElementById("hits");
  if (event.key === "/" && !event.target.closest("input,textarea,select") && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    box.focus();
    box.select();
  } else if (event.key === "Escape" && (event.target === box || hits.contains(event.target))) {
    hits.hidden = true;
    box.blur();
  } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && (event.target === box || hits.contains(event.target))) {
    const links = [box, ...hits.querySelectorAll("a")];
    const at = links.indexOf(event.target) + (event.key === "ArrowDown" ? 1 : -1);
    if (links[at]) { event.preventDefault(); links[at].focus(); }
  }
});
let asked = 0;
async function search(box) {
  const hits = document.getElementById("hits"), number = ++asked;
  const headers = { "X-Requested-With": "fetch" };
  const answer = await fetch(`/api/search?${new URLSearchParams({ name: box.value })}`, { headers });
  if (answer.status === 401) location.reload();
  if (number !== asked || !answer.ok) return;
  const found = (await answer.json()).hits;
  hits.replaceChildren(...found.map((hit) => {
    const item = document.createElement("li"), link = document.createElement("a");
    const kind = document.createElement("span");
    link.href = hit.address;
    kind.className = "badge";
    kind.textContent = hit.kind;
    link.append(kind, ` ${printable(hit.name)}`);
    item.append(link);
    return item;
  }));
  hits.hidden = found.length === 0;
}
let searching;
document.addEventListener("input", (event) => {
  if (event.target.id !== "search") return;
  clearTimeout(searching);
  searching = setTimeout(search, 120, event.target);
});
document.addEventListener("submit", (event) => {
  const first = document.querySelector("#hits:not([hidden]) a");
  if (event.target.matches("form.search") && first) {
    event.preventDefault();
    location.assign(first.href);
  }
});
document.addEventListener("click", (event) => {
  if (!event.target.closest("form.search")) document.getElementById("hits").hidden = true;
});
