// Charts as SVG nodes of a given width. Each takes plain data and knows nothing of the page.

function chart(width, height, label, ...children) {
  return svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, ...children);
}

function horizontalAxis(scale, [left, right], bottom, format, title, top) {
  const parts = scale.ticks.map((tick) => [
    top === null ? null : svg("line", { class: "gridline", x1: scale(tick), x2: scale(tick), y1: top, y2: bottom }),
    svg("text", { x: scale(tick), y: bottom + 15, "text-anchor": "middle" }, format(tick)),
  ]);
  return [...parts.flat(), svg("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }),
    title ? svg("text", { x: (left + right) / 2, y: bottom + 31, "text-anchor": "middle" }, title) : null];
}

function verticalAxis(scale, left, right, format) {
  return scale.ticks.flatMap((tick) => [
    svg("line", { class: "gridline", x1: left, x2: right, y1: scale(tick), y2: scale(tick) }),
    svg("text", { x: left - 6, y: scale(tick) + 4, "text-anchor": "end" }, format(tick)),
  ]);
}

function path(points) {
  let text = "", pen = "M";
  for (const [x, y] of points) {
    if (!Number.isFinite(y)) { pen = "M"; continue; } // a gap, where a log scale has no place
    text += `${pen}${x.toFixed(1)} ${y.toFixed(1)}`;
    pen = "L";
  }
  return text;
}

/* Curves with bands. series: {name, colour, dash, x, y, low, high}; references: {name, value}. */
function lineChart(width, { label, series, references = [], xTitle, yTitle, log = false, xRange = null, yRange = null, xName = "step" }) {
  const height = Math.round(Math.min(300, Math.max(220, width * 0.58)));
  const [left, right, top, bottom] = [46, width - 10, 18, height - 38];
  const positive = (value) => (log && !(value > 0) ? null : value);
  const drawn = [...series.flatMap((s) => [...s.y, ...(s.low || []), ...(s.high || [])]), ...references.map((r) => r.value)];
  const range = yRange || (log ? extent(drawn.map(positive), 0) : extent(drawn));
  const y = log && range[0] > 0 ? logScale(range, [bottom, top]) : linearScale(range, [bottom, top]);
  const x = linearScale(xRange || extent(series.flatMap((s) => s.x), 0), [left, right], width < 380 ? 4 : 6);
  const at = (value) => (log && !(value > 0) ? NaN : y(value));
  const opacity = Math.max(0.06, Math.min(0.16, 0.6 / series.length)); // many bands would add up to grey
  const body = series.flatMap((s) => [
    s.low ? svg("path", { class: "band", style: { fill: s.colour, opacity },
      d: path([...s.x.map((step, i) => [x(step), at(s.high[i])]), ...s.x.map((step, i) => [x(step), at(s.low[i])]).reverse()]) }) : null,
    svg("path", { class: "curve", style: { stroke: s.colour, strokeDasharray: s.dash }, d: path(s.x.map((step, i) => [x(step), at(s.y[i])])) }),
  ]);
  const marks = references.flatMap((r) => [
    svg("line", { class: "reference", x1: left, x2: right, y1: y(r.value), y2: y(r.value) }),
    svg("text", { x: left + 4, y: y(r.value) + (r.below ? 12 : -4) }, `${r.name} ${formatNumber(r.value)}`),
  ]);
  const guide = svg("line", { class: "guide", y1: top, y2: bottom, visibility: "hidden" });
  const area = svg("rect", { x: left, y: top, width: right - left, height: bottom - top, fill: "transparent" });
  const picture = chart(width, height, label, verticalAxis(y, left, right, formatNumber),
    horizontalAxis(x, [left, right], bottom, formatNumber, xTitle, null), marks, body,
    svg("text", { x: left - 40, y: 9 }, yTitle), guide, area);
  followPointer(picture, area, guide, { series, x, left, right, width, xName });
  return picture;
}

function followPointer(picture, area, guide, { series, x, left, right, width, xName }) {
  const steps = [...new Set(series.flatMap((s) => s.x))].sort((a, b) => a - b);
  area.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect();
    const place = ((event.clientX - box.left) / box.width) * width;
    const step = steps[nearest(steps, place, x)];
    guide.setAttribute("x1", x(step));
    guide.setAttribute("x2", x(step));
    guide.setAttribute("visibility", "visible");
    const lines = series.map((s) => {
      const i = nearest(s.x, x(step), x);
      return { colour: s.colour, name: s.name, order: s.y[i], value: formatInterval([s.y[i], s.low ? s.low[i] : null, s.high ? s.high[i] : null]) };
    }).sort((a, b) => b.order - a.order);
    showTip(event, `${xName} ${xName === "step" ? formatCount(step) : formatNumber(step)}`, lines);
  });
  area.addEventListener("pointerleave", () => { guide.setAttribute("visibility", "hidden"); hideTip(); });
}

function nearest(values, place, scale) {
  let [low, high] = [0, values.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (scale(values[middle]) < place) low = middle; else high = middle;
  }
  return Math.abs(scale(values[low]) - place) <= Math.abs(scale(values[high]) - place) ? low : high;
}

/* Rows of named horizontal marks; draw(row, y, scale) returns the nodes of one. */
function rowChart(width, { label, rows, range, xTitle, zero = null, draw, format = formatNumber }) {
  const rowHeight = 26, top = 6;
  const longest = Math.max(...rows.map((row) => row.name.length));
  const left = Math.round(Math.min(width * 0.42, 14 + longest * 6.3));
  const letters = Math.max(4, Math.floor((left - 10) / 6));
  const bottom = top + rows.length * rowHeight, right = width - 44;
  const scale = linearScale(range, [left, right], width < 420 ? 3 : 5);
  const lines = rows.map((row, place) => {
    const y = top + (place + 0.5) * rowHeight;
    const name = row.name.length > letters ? `${row.name.slice(0, letters - 1)}…` : row.name;
    return withTip(svg("g", {},
      svg("rect", { x: 0, y: y - rowHeight / 2, width, height: rowHeight, fill: "transparent" }),
      svg("text", { class: "strong", x: left - 8, y: y + 4, "text-anchor": "end" }, name),
      draw(row, y, scale, left, right)), row.name, row.tip.map((line) => ({ colour: row.colour, ...line })));
  });
  const origin = zero === null ? null : svg("line", { class: "reference", x1: scale(zero), x2: scale(zero), y1: top, y2: bottom });
  return chart(width, bottom + (xTitle ? 38 : 22), label,
    horizontalAxis(scale, [left, right], bottom, format, xTitle, top), origin, lines);
}

/* Bars from `base`; a hollow one is a lower bound. rows: {value, low, high, hollow, note, tip}. */
function barChart(width, { rows, base, ...rest }) {
  const [, high] = extent([base, ...rows.flatMap((row) => [row.value, row.high])], 0.02);
  const draw = (row, y, scale) => {
    const end = Math.max(scale(row.value), scale(base) + 1);
    const style = { fill: row.colour, fillOpacity: row.hollow ? 0.08 : 0.75, stroke: row.colour, strokeDasharray: row.hollow ? "3 2" : "none" };
    const furthest = row.high === null || row.high === undefined ? end : Math.max(end, scale(row.high));
    return [svg("rect", { x: scale(base), y: y - 7, width: end - scale(base), height: 14, rx: 2, style }),
      row.low === null || row.low === undefined ? null : whisker(scale(row.low), scale(row.high), y),
      row.note ? svg("text", { x: furthest + 5, y: y + 4 }, row.note) : null];
  };
  return rowChart(width, { rows, range: [base, high], draw, ...rest });
}

function whisker(low, high, y, cap = 3) {
  const style = { stroke: "var(--ink)", strokeWidth: "1.3" };
  return [[low, high, y, y], [low, low, y - cap, y + cap], [high, high, y - cap, y + cap]].map(([x1, x2, y1, y2]) =>
    svg("line", { x1, x2, y1, y2, style }));
}

/* Boxes from quartile to quartile, whiskers to the extremes, a dot per seed. rows: {box, values}. */
function boxChart(width, { rows, ...rest }) {
  const draw = (row, y, scale) => {
    const [least, lower, median, upper, most] = row.box.map(scale);
    const line = { stroke: row.colour, strokeWidth: "1.4" };
    return [svg("line", { x1: least, x2: most, y1: y, y2: y, style: line }),
      svg("rect", { x: lower, y: y - 7, width: Math.max(1, upper - lower), height: 14, rx: 2, style: { fill: row.colour, fillOpacity: 0.22, stroke: row.colour } }),
      svg("line", { x1: median, x2: median, y1: y - 7, y2: y + 7, style: { stroke: row.colour, strokeWidth: "2.4" } }),
      row.values.map((value, i) => svg("circle", { cx: scale(value), cy: y + ((i * 7) % 5) - 2, r: 1.9, style: { fill: row.colour, fillOpacity: 0.75 } }))];
  };
  return rowChart(width, { rows, range: extent(rows.flatMap((row) => row.values), 0.04), draw, ...rest });
}

/* Dots with intervals about zero. rows: {value, low, high}. */
function forestChart(width, { rows, zero = 0, ...rest }) {
  const range = extent([zero, ...rows.flatMap((row) => [row.value, row.low, row.high])], 0.06);
  const draw = (row, y, scale) => [
    row.low === null ? null : svg("line", { x1: scale(row.low), x2: scale(row.high), y1: y, y2: y, style: { stroke: row.colour, strokeWidth: "5", strokeOpacity: 0.35, strokeLinecap: "round" } }),
    svg("circle", { cx: scale(row.value), cy: y, r: 4.2, style: { fill: row.colour } })];
  return rowChart(width, { rows, range, zero, draw, ...rest });
}

/* A permutation as its matrix: action a of the row becomes the marked column. */
function permutationChart(relabel, label) {
  const count = relabel.length, cell = Math.min(16, 84 / count), size = cell * count;
  const cells = relabel.flatMap((to, from) => relabel.map((_, column) => withTip(
    svg("rect", { x: column * cell, y: from * cell, width: cell - 1, height: cell - 1, rx: 1,
      style: { fill: column === to ? "var(--c0)" : "var(--grid)" } }),
    label, [{ name: `action ${from} becomes`, value: String(to) }])));
  return svg("svg", { width: size, height: size, role: "img", "aria-label": label }, ...cells);
}

/* A Hasse diagram: larger values above; the colour of a node is its value. */
function hasseChart(width, { label, x, y, labels, values, covers }) {
  const [lowX, highX] = extent(x, 0), [lowY, highY] = extent(y, 0);
  const rows = Math.round(highY - lowY) + 1, height = Math.max(120, rows * 52);
  const radius = Math.max(5, Math.min(13, (width - 20) / (highX - lowX + 1) / 2.4));
  const atX = linearScale([lowX, highX], [radius + 6, width - radius - 6]);
  const atY = linearScale([lowY, highY], [height - radius - 6, radius + 6]);
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const share = (value) => (most > least ? (value - least) / (most - least) : 0.5);
  const edges = covers.map(([upper, lower]) => svg("line", { x1: atX(x[upper]), y1: atY(y[upper]), x2: atX(x[lower]), y2: atY(y[lower]),
    style: { stroke: "var(--quiet)", strokeOpacity: 0.6 } }));
  const nodes = labels.map((name, i) => withTip(svg("g", {},
    svg("circle", { cx: atX(x[i]), cy: atY(y[i]), r: radius,
      style: { fill: `color-mix(in srgb, var(--c0) ${Math.round(8 + 52 * share(values[i]))}%, var(--card))`, stroke: "var(--quiet)" } }),
    radius < 8 ? null : svg("text", { class: "strong", x: atX(x[i]), y: atY(y[i]) + 3.5, "text-anchor": "middle", style: { fontSize: "9px" } }, name)),
  `slot ${name}`, [{ name: "value", value: formatNumber(values[i]) }]));
  return chart(width, height, label, edges, nodes);
}
