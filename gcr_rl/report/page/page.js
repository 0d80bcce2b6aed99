// The page itself: the table, filters, cards that are drawn when they come near, their sources.

const data = JSON.parse(document.getElementById("data").textContent);
const hiddenTasks = new Set(), hiddenMethods = new Set();
const shown = (method) => !hiddenMethods.has(method);
const KINDS = ["png", "svg", "pdf"];
const allCards = [];

/* ---- summary table ---- */

const tableRows = [];

function summaryTable() {
  // The task and its steps stand above its rows.
  const columns = data.titles.map((_, i) => i).filter((i) => !["task", "steps"].includes(data.titles[i]));
  const body = html("tbody");
  data.tasks.forEach((task, t) => {
    const head = html("tr", {}, html("th", { class: "group", colspan: columns.length },
      html("span", {}, task.label, html("span", { class: "quiet" }, `${formatCount(task.budget)} steps`))));
    tableRows.push({ node: head, task: t, method: null });
    body.append(head);
    for (const row of task.rows) {
      const cells = columns.map((i) => tableCell(...row.cells[i], data.titles[i] === "method" ? data.methods[row.m] : null));
      const line = html("tr", {}, ...cells);
      tableRows.push({ node: line, task: t, method: row.m });
      body.append(line);
    }
  });
  return html("div", { id: "table" }, html("table", {},
    html("thead", {}, html("tr", {}, ...columns.map((i) => html("th", {}, data.titles[i])))), body));
}

function tableCell(text, rank, method) {
  const [, main, interval] = method ? [null, text, ""] : /^(.*?)( \[.*\])?$/.exec(text);
  return html("td", { class: rank ? `rank${rank}` : null, title: rank ? ["", "best of the task", "second best of the task"][rank] : null },
    method ? swatch(method) : null, main, interval ? html("span", { class: "interval" }, interval.trim()) : null);
}

function legendText(settings) {
  const tested = settings.tests
    ? `p: two-sided paired sign-flip (permutation) test of AUC@N over seeds against the best of the other methods of the task, Holm-corrected over the ${settings.tests} different test${settings.tests === 1 ? "" : "s"} of this report; † better, ‡ worse at corrected p < ${settings.significance}.`
    : "No two methods of a task share their seeds, so no test was made.";
  return `Best in bold on green, second best in italics, of all methods of the task, hidden ones too. Square brackets: ${settings.confidence * 100} % bootstrap interval of the mean over seeds (${formatCount(settings.resamples)} resamples, expanded percentile). Steps to threshold: median over seeds, (seeds that got there / seeds), ≥ marks a lower bound. Thresholds come from the task. ${tested}`;
}

/* ---- cards ---- */

function makeCard(card) {
  const drawing = html("div", { class: "drawing waiting" });
  const source = html("details", { class: "source" }, html("summary", {}, "rows, configuration, command"));
  source.addEventListener("toggle", () => { if (source.open) fillSource(card); });
  const node = html("article", { class: card.full ? "card full" : "card" }, html("h3", {}, card.title), card.facts ? html("p", { class: "facts" }, card.facts) : null, drawing, source);
  const made = Object.assign(card, { node, drawing, source, near: false, dirty: true });
  node.card = made;
  allCards.push(made);
  return node;
}

function drawCard(card) {
  card.dirty = false;
  const width = Math.max(240, card.drawing.clientWidth);
  const picture = card.draw(width, shown) || html("p", { class: "empty" }, "None of the picked methods has this.");
  card.drawing.classList.remove("waiting");
  card.drawing.replaceChildren(picture);
  if (card.source.open) fillSource(card);
}

function fillSource(card) {
  const { titles, lines } = card.rows(shown);
  const files = card.files.filter(Boolean).flatMap((stem) => KINDS.map((kind) => html("a", { href: `./${encodeURIComponent(`${stem}.${kind}`)}` }, kind)));
  const show = (value) => (typeof value === "number" ? String(value) : value === null ? "n/a" : value);
  const table = html("div", { class: "scroll" }, html("table", {}, html("thead", {}, html("tr", {}, ...titles.map((title) => html("th", {}, title)))),
    html("tbody", {}, ...lines.map((line) => html("tr", {}, ...line.map((value) => html("td", {}, show(value))))))));
  const runs = [...new Set(card.runs(shown))].map((number) => runSource(data.runs[number]));
  card.source.replaceChildren(card.source.firstChild, files.length ? html("p", {}, "figure: ", ...files.flatMap((link, i) => (i ? [" · ", link] : [link]))) : "", table, ...runs);
}

function runSource(run) {
  const link = (name) => html("a", { href: `${run.link}/${name}` }, name);
  return html("details", {}, html("summary", {}, run.folder),
    html("p", {}, link("evaluation.jsonl"), " · ", run.log ? [link("log.jsonl"), " · "] : null, link("config.json"), " · ", link("provenance.json")),
    html("p", {}, "command: ", html("code", {}, run.command || "unknown")),
    html("p", { class: "quiet" }, `commit ${run.commit}, seeds ${run.seeds}`),
    html("p", { class: "quiet" }, "SHA-256 of evaluation.jsonl: ", html("code", {}, run.sha256)),
    html("pre", {}, JSON.stringify(run.config, null, 1)));
}

/* ---- filters: what is seen is drawn at once, what is near after that, the rest when it comes near ---- */

function refresh(cards = allCards) {
  for (const card of cards) {
    card.node.hidden = card.task !== null && hiddenTasks.has(card.task);
    card.dirty = true;
  }
  const near = cards.filter((card) => card.near && !card.node.hidden);
  near.filter(isSeen).forEach(drawCard); // places are read before anything is drawn: one layout
  requestAnimationFrame(() => setTimeout(() => near.filter((card) => card.dirty && !card.node.hidden).forEach(drawCard)));
}

function isSeen(card) {
  const { top, bottom } = card.node.getBoundingClientRect();
  return bottom > 0 && top < innerHeight;
}

function applyFilters() {
  hideTip();
  for (const { node, task, method } of tableRows) node.hidden = hiddenTasks.has(task) || (method !== null && hiddenMethods.has(method));
  refresh();
}

function picker(place, names, hidden, decorate) {
  const buttons = names.map((name, number) => html("button", { type: "button", class: "chip", "aria-pressed": "true" }, decorate(number), name));
  const update = () => {
    buttons.forEach((button, number) => button.setAttribute("aria-pressed", String(!hidden.has(number))));
    applyFilters();
  };
  buttons.forEach((button, number) => button.addEventListener("click", () => {
    if (!hidden.delete(number)) hidden.add(number);
    update();
  }));
  const all = html("button", { type: "button", class: "chip all" }, "all");
  all.addEventListener("click", () => { hidden.clear(); update(); });
  const none = html("button", { type: "button", class: "chip all" }, "none");
  none.addEventListener("click", () => { names.forEach((_, number) => hidden.add(number)); update(); });
  document.getElementById(place).append(...buttons, all, none);
}

/* ---- light and dark ---- */

function setUpTheme() {
  const button = document.getElementById("theme"), themes = ["system", "light", "dark"];
  let theme = "system";
  try { theme = themes.find((name) => name === localStorage.getItem("gcr-theme")) || theme; } catch { /* no storage */ }
  const apply = () => {
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.replaceChildren(`theme: ${theme}`);
  };
  button.addEventListener("click", () => {
    theme = themes[(themes.indexOf(theme) + 1) % themes.length];
    try { localStorage.setItem("gcr-theme", theme); } catch { /* no storage */ }
    apply();
  });
  apply();
}

/* ---- the whole page ---- */

function makeSection(section) {
  const cards = section.cards.map(makeCard);
  const wide = section.id === "hasse";
  const tools = section.tools ? section.tools(() => refresh(section.cards)) : null;
  return html("section", { id: section.id }, html("h2", {}, section.title), html("p", { class: "intro" }, section.intro), tools,
    html("div", { class: wide ? "cards wide" : "cards" }, ...cards));
}

function build() {
  const main = document.getElementById("main"), sections = makeSections(data);
  const seeds = new Set(data.tasks.flatMap((task) => task.rows.flatMap((row) => row.seeds))).size;
  document.getElementById("about").append(`${data.tasks.length} task${data.tasks.length === 1 ? "" : "s"}, ${data.methods.length} method${data.methods.length === 1 ? "" : "s"}, ${seeds} seed${seeds === 1 ? "" : "s"}, ${data.runs.length} run${data.runs.length === 1 ? "" : "s"}`);
  picker("tasks", data.tasks.map((task) => task.label), hiddenTasks, () => null);
  picker("methods", data.methods.map((method) => method.name), hiddenMethods, (m) => lineSwatch(data.methods[m]));
  document.querySelectorAll("#methods .chip:not(.all)").forEach((chip, m) => chip.setAttribute("title", data.methods[m].about));
  const summary = html("section", { id: "summary" }, html("h2", {}, "Summary"), html("p", { class: "intro" }, legendText(data.settings)), summaryTable());
  const notes = data.notes.length ? html("section", { id: "notes" }, html("h2", {}, "Notes"), html("ul", { class: "notes" }, ...data.notes.map((note) => html("li", {}, note)))) : null;
  const parts = [summary, ...sections.map(makeSection), notes].filter(Boolean);
  main.append(...parts, html("footer", {}, `gcr-rl ${data.version}. Tables for papers: `, html("a", { href: "./table.tex" }, "LaTeX"), ", ",
    html("a", { href: "./table.md" }, "Markdown"), "; every number: ", html("a", { href: "./report.json" }, "report.json"), "."));
  document.getElementById("contents").append(...parts.map((part) => html("a", { href: `#${part.id}` }, part.querySelector("h2").textContent)));
}

function watch() {
  const nearby = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      target.card.near = isIntersecting;
      if (isIntersecting && target.card.dirty) drawCard(target.card);
    }
  }, { rootMargin: "300px 0px" });
  for (const card of allCards) nearby.observe(card.node);
  let width = innerWidth, waiting = 0;
  addEventListener("resize", () => {
    if (innerWidth === width) return; // a phone's address bar moves only the height
    width = innerWidth;
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(() => refresh());
  });
  addEventListener("beforeprint", () => { for (const card of allCards) if (card.dirty && !card.node.hidden) drawCard(card); });
  addEventListener("scroll", hideTip, { passive: true });
}

setUpTheme();
build();
watch();
