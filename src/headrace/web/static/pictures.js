"use strict";
// Charts, sparklines and the records in flight: drawn from the values that the page has, in pixels
// of the screen, so that texts have one size everywhere.
const SVG = "http://www.w3.org/2000/svg";
const WIDTH_OF_AXIS = 56, HEIGHT = 128, TOP = 10, BOTTOM = 106;
const MOST_CHARS = 300, MOST_DRAWN = 600, MOST_RUNS = 100, THINNEST = 2, FLIGHT_HEIGHT = 26;

function draw(parent, name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  parent.append(element);
  return element;
}

// Whoever names a group or a client chooses any characters: some hide a text, or turn its direction.
function printable(text) {
  const escaped = (character) => `\\u${character.codePointAt(0).toString(16)}`;
  return text.slice(0, MOST_CHARS).replace(/[\p{C}\p{Zl}\p{Zp}]/gu, escaped);
}

function short(value) {
  if (value === null || value === undefined) return "unknown";
  if (value && Math.abs(value) < 9.95) return value.toFixed(1).replace(/\.0$/, "");
  for (const unit of ["", "k", "M", "G", "T"]) {
    if (Math.abs(value) < 999.5 || unit === "T") {
      return (!unit || Math.abs(value) >= 99.95 ? value.toFixed(0) : value.toFixed(1)) + unit;
    }
    value /= 1000;
  }
}

function duration(milliseconds) {
  if (milliseconds === null || milliseconds === undefined) return "unknown";
  if (milliseconds < 60000) {
    return milliseconds ? `${(milliseconds / 1000).toFixed(milliseconds < 10000 ? 1 : 0)} s` : "0 s";
  }
  const minutes = Math.floor(milliseconds / 60000), hours = Math.floor(minutes / 60);
  const days = Math.floor(hours / 24), two = (number) => String(number).padStart(2, "0");
  if (days) return `${days}d ${two(hours % 24)}h`;
  if (hours) return `${hours}h ${two(minutes % 60)}m`;
  return `${minutes}m ${two(Math.floor(milliseconds / 1000) % 60)}s`;
}

function clock(timeMs) {
  return new Date(timeMs).toISOString().slice(11, 19);
}

const known = (values) => values.filter((value) => value !== null);

// The line through the known values, broken where one is unknown; a single one is a dot.
function path(times, values, x, y) {
  let line = "", pen = "M";
  values.forEach((value, index) => {
    if (value === null) { pen = "M"; return; }
    line += `${pen}${x(times[index]).toFixed(1)} ${y(value).toFixed(1)}${pen === "M" ? "h0" : ""}`;
    pen = "L";
  });
  return line;
}

// The least value that is not below another one, whose thirds are short: of durations in units
// that people count in.
function roundUp(value, unit) {
  if (unit === "duration") {
    const steps = [3, 6, 15, 30, 90, 180, 540, 900, 1800, 3600, 5400, 10800, 21600, 43200, 86400];
    const step = steps.find((seconds) => seconds * 1000 >= value);
    return step ? step * 1000 : Math.ceil(value / 259200000) * 259200000;
  }
  let step = 1;
  while (step * 10 <= value) step *= 10;
  while (step > value) step /= 10;
  return [1.5, 3, 6, 9, 15].map((factor) => step * factor).find((top) => top >= value);
}

function spark(place) {
  const times = JSON.parse(place.dataset.times), values = JSON.parse(place.dataset.points);
  const numbers = known(values);
  if (numbers.length < 2) { place.textContent = "–"; return; }
  const first = times[0], last = times[times.length - 1], most = Math.max(...numbers);
  const label = `${place.dataset.name}: ${short(numbers[0])} to ${short(numbers[numbers.length - 1])}`
    + ` in ${duration(last - first)}, at most ${short(most)}`;
  const svg = document.createElementNS(SVG, "svg");
  draw(svg, "title", {}, label);
  for (const [key, value] of Object.entries({ role: "img", "aria-label": label, width: 96, height: 20 })) {
    svg.setAttribute(key, value);
  }
  const x = (time) => 1 + 94 * (time - first) / Math.max(1, last - first);
  const y = (value) => 18 - 16 * value / (most || 1);
  draw(svg, "path", { class: "line", d: path(times, values, x, y) });
  place.replaceChildren(svg);
}

function range() {
  try { return Number(sessionStorage.getItem("range") || 0); } catch { return 0; }
}

function chart(figure, width) {
  const drawing = figure.querySelector(".drawing"), shown = figure.dataset.unit === "duration" ? duration : short;
  let times = JSON.parse(figure.dataset.times);
  let lines = [...figure.querySelectorAll("data")].map(
    (line) => ({ name: line.dataset.name, values: JSON.parse(line.dataset.values) }));
  const seconds = range();
  if (seconds && times.length) {
    const from = times.findIndex((time) => time >= times[times.length - 1] - seconds * 1000);
    times = times.slice(from);
    lines = lines.map((line) => ({ ...line, values: line.values.slice(from) }));
  }
  const numbers = lines.flatMap((line) => known(line.values));
  if (numbers.length < 2 || times.length < 2) return;
  const first = times[0], last = times[times.length - 1];
  const most = roundUp(Math.max(figure.dataset.unit === "duration" ? 3000 : 0.3, ...numbers), figure.dataset.unit);
  const x = (time) => WIDTH_OF_AXIS + (width - WIDTH_OF_AXIS - 4) * (time - first) / Math.max(1, last - first);
  const y = (value) => BOTTOM - (BOTTOM - TOP) * value / most;
  const svg = document.createElementNS(SVG, "svg");
  const label = `${figure.dataset.title} over ${duration(last - first)}: ` + lines.map((line) => {
    const values = known(line.values);
    return `${line.name}: now ${shown(values[values.length - 1])}, at most ${shown(values.length ? Math.max(...values) : null)}`;
  }).join("; ");
  for (const [key, value] of Object.entries({ role: "img", "aria-label": label, width, height: HEIGHT })) svg.setAttribute(key, value);
  for (let third = 0; third <= 3; third++) {
    const at = y(most * third / 3);
    draw(svg, "path", { class: "grid", d: `M${WIDTH_OF_AXIS} ${at}H${width - 4}` });
    draw(svg, "text", { class: "axis", x: WIDTH_OF_AXIS - 6, y: at + 4, "text-anchor": "end" }, shown(most * third / 3));
  }
  const marks = width > 420 ? 4 : 2;
  for (let mark = 0; mark < marks; mark++) {
    const time = first + (last - first) * mark / (marks - 1);
    const anchor = mark === 0 ? "start" : mark === marks - 1 ? "end" : "middle";
    draw(svg, "text", { class: "axis", x: x(time), y: HEIGHT - 6, "text-anchor": anchor }, mark === marks - 1 ? `now ${clock(time)}` : clock(time));
  }
  draw(svg, "path", { class: "grid now", d: `M${x(last)} ${TOP}V${BOTTOM}` });
  lines.forEach((line, index) => {
    const series = draw(svg, "g", { class: `series-${"ab"[index]}` });
    draw(series, "path", { class: "line", d: path(times, line.values, x, y) });
  });
  const hover = draw(svg, "path", { class: "hover" }), values = document.createElement("output");
  svg.addEventListener("pointermove", (event) => {
    const left = event.clientX - svg.getBoundingClientRect().left;
    let nearest = 0;
    times.forEach((time, index) => { if (Math.abs(x(time) - left) < Math.abs(x(times[nearest]) - left)) nearest = index; });
    hover.setAttribute("d", `M${x(times[nearest])} ${TOP}V${BOTTOM}`);
    values.textContent = `${clock(times[nearest])}  ` + lines.map((line) => `${lines.length > 1 ? `${line.name} ` : ""}${shown(line.values[nearest])}`).join("  ");
  });
  svg.addEventListener("pointerleave", () => { hover.removeAttribute("d"); values.textContent = ""; });
  drawing.replaceChildren(svg, values);
}

const WORDS = { locked: "held", available: "available", waiting: "waiting", finished: "done" };

const NUMBERS = new Intl.NumberFormat("en");
const exact = (number) => NUMBERS.format(number);

function told(span) {
  const count = span.last_offset - span.first_offset + 1;
  let text = exact(span.first_offset) + (count > 1 ? ` to ${exact(span.last_offset)} (${exact(count)} records)` : "");
  if (span.state === "locked") {
    text += `: held by ${printable(span.client_id || span.member_id || "unknown")}`;
    if (span.held_ms !== null) text += ` for ${duration(span.held_ms)}`;
    text += `, lock ends in ${duration(span.remaining_ms)}`;
  } else if (span.state === "waiting") text += `: waits ${duration(span.remaining_ms)} for its next delivery`;
  else text += `: ${WORDS[span.state]}`;
  return span.delivery_count ? `${text}, delivered ${span.delivery_count} time${span.delivery_count === 1 ? "" : "s"}` : text;
}

// What this page has seen of a share group: since when members hold records, as a lock that is
// renewed is the same one; and the counts of records given back. Another page forgets it.
const LEAST_STEP_MS = 1000, MOST_STEP_MS = 20000, MOST_STEPS = 900;
let seen = { page: "", lock: 0, holds: {}, counts: [] };
try { seen = JSON.parse(sessionStorage.getItem("seen")) || seen; } catch { /* it is off */ }

function watch() {
  const section = document.getElementById("in-flight"), now = Date.now();
  if (!section) return;
  if (seen.page !== location.href) seen = { page: location.href, lock: 0, holds: {}, counts: [] };
  seen.lock = Number(section.dataset.lock) || seen.lock;
  const clients = JSON.parse(section.dataset.clients), holds = {};
  for (const block of section.querySelectorAll(".flight-block")) {
    const place = block.querySelector(".flight");
    place.spans = JSON.parse(place.dataset.spans);
    for (const span of place.spans) {
      span.client_id = clients[span.member_id];
      span.held_ms = null;
      if (span.state !== "locked") continue;
      const key = [block.dataset.topic, block.dataset.partition, span.member_id, span.first_offset, span.delivery_count].join(" ");
      holds[key] = seen.holds[key] ?? now - Math.max(0, seen.lock && seen.lock - span.remaining_ms);
      span.held_ms = now - holds[key];
    }
  }
  seen.holds = holds;
  const last = seen.counts[seen.counts.length - 1];
  if (!last || now - last[0] >= LEAST_STEP_MS) {
    seen.counts = [...seen.counts, [now, Number(section.dataset.released), Number(section.dataset.archived)]].slice(-MOST_STEPS);
  }
  try { sessionStorage.setItem("seen", JSON.stringify(seen)); } catch { /* it is full or off */ }
  const figure = document.querySelector("#given-back figure");
  if (!figure) return;
  const steps = seen.counts.slice(1).map((later, index) => [seen.counts[index], later]);
  // Unknown if nobody looked, or if the broker has begun to count anew.
  const rate = (which) => steps.map(([before, later]) => {
    const grown = later[which] - before[which], time = later[0] - before[0];
    return grown < 0 || time > MOST_STEP_MS ? null : grown * 1000 / time;
  });
  figure.dataset.times = JSON.stringify(steps.map(([, later]) => later[0]));
  figure.querySelectorAll("data").forEach((line, index) => { line.dataset.values = JSON.stringify(rate(index + 1)); });
}

// The bars of all partitions have one scale. Behind what is in flight comes the backlog.
function flight(place, width) {
  const [start, inFlight, end, widest] = ["start", "flight", "end", "widest"].map((name) => Number(place.dataset[name]));
  const spans = place.spans.slice(0, MOST_DRAWN), scale = width / Math.max(1, widest);
  if (end <= start) { place.textContent = "caught up: nothing is in flight or waits"; return; }
  const svg = document.createElementNS(SVG, "svg"), counts = {};
  let x = 0;
  const bar = (kind, records, title, text) => {
    const size = Math.max(THINNEST, records * scale);
    const group = draw(svg, "g", {});
    const rect = draw(group, "rect", { class: `${kind}${size > 8 ? "" : " thin"}`, x: x.toFixed(1), y: 0, width: size.toFixed(1), height: FLIGHT_HEIGHT });
    draw(rect, "title", {}, title);
    if (text && size > 7 * text.length + 8) draw(group, "text", { class: kind, x: x + 5, y: 17 }, text);
    x += size;
  };
  for (const span of spans) {
    const records = span.last_offset - span.first_offset + 1;
    counts[span.state] = (counts[span.state] || 0) + records;
    bar(span.state, records, told(span), span.state === "locked" ? `${printable(span.client_id || "")} ${duration(span.held_ms)}` : "");
  }
  const listed = spans.length ? spans[spans.length - 1].last_offset + 1 : start;
  if (spans.length && inFlight > listed) bar("backlog", inFlight - listed, `${exact(inFlight - listed)} more in flight, not listed`);
  const backlog = end - Math.max(listed, inFlight || start);
  if (backlog > 0) bar("backlog", backlog, `${exact(backlog)} not delivered yet`);
  const label = `offsets ${exact(start)} to ${exact(end - 1)}: `
    + [...Object.entries(counts).map(([state, count]) => `${exact(count)} ${WORDS[state]}`),
       `${exact(Math.max(0, backlog))} not delivered yet`].join(", ");
  // Spans of single records have a least width, so that together they may need more than there is.
  const fit = Math.max(1, x / width);
  for (const [key, value] of Object.entries({ role: "img", "aria-label": label, width: x / fit, height: FLIGHT_HEIGHT, viewBox: `0 0 ${x} ${FLIGHT_HEIGHT}`, preserveAspectRatio: "none" })) svg.setAttribute(key, value);
  if (fit > 1) svg.querySelectorAll("text").forEach((text) => text.remove());
  place.replaceChildren(svg);
}

// The bars near the window are drawn at once, the others when they come near it. Sizes are read
// before anything is drawn, as each one that is read after a change costs a layout.
let later;
function flights(root) {
  const blocks = [...root.querySelectorAll(".flight-block")];
  if (!blocks.length) return;
  const width = blocks[0].querySelector(".flight").clientWidth || 800, height = window.innerHeight;
  const picture = (block) => flight(block.querySelector(".flight"), width);
  const near = blocks.map((block) => block.getBoundingClientRect()).map(({ top, bottom }) => bottom > -height && top < 2 * height);
  if (later) later.disconnect();
  later = new IntersectionObserver((entries) => entries.filter((entry) => entry.isIntersecting).forEach(({ target }) => {
    later.unobserve(target);
    picture(target);
  }), { rootMargin: "100% 0px" });
  blocks.forEach((block, index) => { if (near[index]) picture(block); else later.observe(block); });
}

// The table of what is in flight in a partition, once it is opened.
function runs(place) {
  const { topic, partition } = place.closest(".flight-block").dataset;
  const table = document.getElementById("runs").content.firstElementChild.cloneNode(true);
  const body = table.tBodies[0], first = body.rows[0], shown = (ms) => ms === null ? "–" : duration(ms);
  first.remove();
  for (const span of place.closest(".flight-block").querySelector(".flight").spans.slice(0, MOST_RUNS)) {
    const row = first.cloneNode(true), cells = row.cells, link = cells[0].firstElementChild, form = row.querySelector("form");
    link.href = `/record?${new URLSearchParams({ topic, partition, offset: span.first_offset })}`;
    link.textContent = exact(span.first_offset);
    cells[1].textContent = exact(span.last_offset);
    cells[2].firstElementChild.classList.add(span.state);
    cells[2].firstElementChild.textContent = WORDS[span.state];
    cells[3].textContent = span.member_id ? printable(span.client_id || span.member_id) : "–";
    cells[4].textContent = shown(span.held_ms);
    cells[5].textContent = shown(span.remaining_ms);
    cells[6].textContent = span.delivery_count || "–";
    if (form && span.state === "locked") {
      const fields = { topic, partition, first: span.first_offset, last: span.last_offset };
      for (const [name, value] of Object.entries(fields)) form.elements[name].value = value;
      form.lastElementChild.setAttribute("aria-label", `Preview the release of records ${span.first_offset} to ${span.last_offset}`);
    } else if (form) form.remove();
    body.append(row);
  }
  place.replaceChildren(table);
}

// JSON is indented and coloured without parsing it, so that its numbers and a cut end stay as they are.
const TOKENS = /"(?:[^"\\]|\\.)*"?|-?\d[\d.eE+-]*|true|false|null|[{}[\],:]|\s+|./gs;

function json(place) {
  if (place.dataset.drawn) return;
  place.dataset.drawn = "yes";
  const indents = place.dataset.format === "json", tokens = place.textContent.match(TOKENS) || [];
  const pieces = [];
  let depth = 0, after = "";
  const line = () => `\n${"  ".repeat(Math.min(depth, 32))}`;
  tokens.forEach((token, index) => {
    if (/^\s/.test(token)) { if (!indents) pieces.push(token); return; }
    const next = tokens.slice(index + 1, index + 3).find((other) => !/^\s/.test(other));
    let kind = "";
    if (token[0] === '"') kind = next === ":" ? "name" : "text";
    else if (/^[-\d]/.test(token)) kind = "number";
    else if (/^(true|false|null)$/.test(token)) kind = "word";
    if (indents) {
      if ("}]".includes(token)) { depth = Math.max(0, depth - 1); if (!"{[".includes(after)) pieces.push(line()); }
      else if (after && "{[,".includes(after)) pieces.push(line());
      if ("{[".includes(token)) depth++;
    }
    if (kind) {
      const span = document.createElement("span");
      span.className = `json-${kind}`;
      span.textContent = token;
      pieces.push(span);
    } else pieces.push(indents && token === ":" ? ": " : token);
    after = token;
  });
  place.replaceChildren(...pieces);
}

function drawAll(root) {
  const figures = [...root.querySelectorAll("figure.chart")];
  const widths = figures.map((figure) => figure.querySelector(".drawing").clientWidth || 280);
  flights(root);
  figures.forEach((figure, index) => chart(figure, widths[index]));
  root.querySelectorAll(".spark").forEach(spark);
  root.querySelectorAll("details[open] .runs").forEach(runs);
  root.querySelectorAll("pre[data-format=json]").forEach(json);
  root.querySelectorAll("pre[data-format=line]").forEach((place) => { if (/^[{[]/.test(place.textContent)) json(place); });
  root.querySelectorAll("[data-range]").forEach((button) => button.setAttribute("aria-pressed", String(Number(button.dataset.range) === range())));
}
