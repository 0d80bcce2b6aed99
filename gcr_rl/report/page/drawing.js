"use strict";
// Nodes, numbers, scales and the tip. Text only ever enters the page as text nodes.

const SVG_SPACE = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "style") Object.assign(node.style, value);
    else if (value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}

function html(name, attributes, ...children) {
  return fill(document.createElement(name), attributes, children);
}

function svg(name, attributes, ...children) {
  return fill(document.createElementNS(SVG_SPACE, name), attributes, children);
}

/* ---- numbers ---- */

function formatNumber(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "n/a";
  const size = Math.abs(value);
  for (const [scale, least, letter] of [[1e9, 1e9, "G"], [1e6, 1e6, "M"], [1e3, 1e4, "k"]]) {
    if (size >= least) return `${Number((value / scale).toPrecision(4))}${letter}`;
  }
  if (size > 0 && size < 1e-3) return value.toExponential(2);
  return String(Number(value.toPrecision(4)));
}

function formatInterval([estimate, low, high]) {
  const mean = formatNumber(estimate);
  return low === null ? mean : `${mean}  [${formatNumber(low)}, ${formatNumber(high)}]`;
}

function formatCount(value) {
  return value === null ? "n/a" : value.toLocaleString("en-US");
}

/* ---- scales ---- */

function niceTicks(low, high, count) {
  const span = high - low;
  if (!(span > 0)) return [low];
  const raw = span / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].find((factor) => factor * power >= raw) * power;
  const ticks = [];
  for (let place = Math.ceil(low / step - 1e-9); place * step <= high + step * 1e-9; place += 1) {
    ticks.push(Number((place * step).toPrecision(12)));
  }
  return ticks;
}

function linearScale([low, high], [from, to], count = 5) {
  const span = high - low || 1;
  const at = (value) => from + ((value - low) / span) * (to - from);
  at.ticks = niceTicks(low, high, count);
  return at;
}

function logScale([low, high], [from, to]) {
  const first = Math.log10(low), span = Math.log10(high) - first || 1;
  const at = (value) => from + ((Math.log10(value) - first) / span) * (to - from);
  at.ticks = [];
  const stride = Math.max(1, Math.ceil(span / 5));
  for (let power = Math.ceil(first - 1e-9); power <= first + span + 1e-9; power += stride) at.ticks.push(10 ** power);
  if (at.ticks.length < 2) at.ticks = [low, high];
  return at;
}

function extent(values, room = 0.05) {
  let low = Infinity, high = -Infinity;
  for (const value of values) {
    if (value === null || value === undefined) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (low > high) return [0, 1];
  const span = high - low || Math.max(Math.abs(high), 1) * 0.1;
  return [low - room * span, high + room * span];
}

/* ---- colours: one per method over the whole page ---- */

const DASHES = ["none", "7 3", "2 3", "9 3 2 3"];

function colourOf(method) { return `var(--c${method.colour})`; }

function lineSwatch(method) {
  const stroke = { stroke: colourOf(method), strokeDasharray: DASHES[method.dashes], strokeWidth: "2.6" };
  return svg("svg", { width: 22, height: 8, "aria-hidden": "true" },
    svg("line", { x1: 1, x2: 21, y1: 4, y2: 4, style: stroke }));
}

function swatch(method) {
  return html("span", { class: "swatch", style: { background: colourOf(method) } });
}

/* ---- the tip that follows the pointer ---- */

function showTip(event, head, lines) {
  const tip = document.getElementById("tip");
  tip.replaceChildren(html("div", { class: "head" }, head), ...lines.map(({ colour, name, value }) =>
    html("div", { class: "line" },
      html("span", { class: "dot", style: { background: colour || "transparent" } }),
      html("span", {}, name), html("span", { class: "value" }, value))));
  tip.hidden = false;
  const { offsetWidth: width, offsetHeight: height } = tip;
  const left = event.clientX + 16 + width > innerWidth ? event.clientX - width - 12 : event.clientX + 16;
  const above = event.clientY + 16 + height > innerHeight ? event.clientY - height - 12 : event.clientY + 16;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${Math.max(4, above)}px`;
}

function hideTip() { document.getElementById("tip").hidden = true; }

function withTip(node, head, lines) {
  node.addEventListener("pointermove", (event) => showTip(event, head, lines));
  node.addEventListener("pointerleave", hideTip);
  return node;
}
