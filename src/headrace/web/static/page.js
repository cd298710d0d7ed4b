"use strict";
// A poll replaces a part of the page. Opened details and the focus stay as they are.
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
  const failed = event.detail.failed === true;
  state.classList.toggle("stale", failed);
  state.textContent = failed ? "no answer" : "live";
});
// A page that nobody sees asks for nothing.
document.addEventListener("htmx:beforeRequest", (event) => {
  if (document.hidden) event.preventDefault();
});
