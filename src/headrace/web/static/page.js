"use strict";
// Times that grow between two answers, and the part of a page that a poll replaces: opened details
// and the focus stay.
document.addEventListener("htmx:beforeSwap", (event) => {
  const target = event.detail.target;
  const open = [...target.querySelectorAll("details[open][id]")].map((one) => one.id);
  const focus = document.activeElement && document.activeElement.id;
  target.addEventListener("htmx:afterSettle", () => {
    for (const id of open) {
      const details = document.getElementById(id);
      if (details) details.open = true;
    }
    if (focus && document.activeElement === document.body) {
      const element = document.getElementById(focus);
      if (element) element.focus({ preventScroll: true });
    }
  }, { once: true });
});
document.addEventListener("htmx:afterRequest", (event) => {
  const state = document.getElementById("live");
  if (!state) return;
  state.classList.toggle("stale", event.detail.failed === true);
  if (event.detail.failed) state.textContent = "no answer";
});
