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
  if (part.dataset.state && event.detail.xhr.status === 204) state.textContent = part.dataset.state;
  delete part.dataset.state;
});
// A page that nobody sees asks for nothing.
document.addEventListener("htmx:beforeRequest", (event) => {
  if (document.hidden) event.preventDefault();
});
