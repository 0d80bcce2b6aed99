// What the page shows, section by section. A card is
//   {title, facts, task, draw(width, shown), rows(shown), runs(shown), files}
// where shown(m) says whether method number m is picked. draw returns null if nothing is left.

const SECTION_INTROS = {
  curves: (s) => `Mean return over seeds against environment steps, not smoothed; the band is the pointwise ${s.confidence * 100} % bootstrap interval of the mean (${formatCount(s.resamples)} resamples, expanded percentile). Dashed lines: threshold and optimum, known from the task.`,
  speed: (s) => `First AUC@N divided by N, the mean return over training, with its ${s.confidence * 100} % bootstrap interval; then the median of the steps until the mean of ${s.window} checkpoints reaches the task's threshold, with the number of seeds that got there; a hollow bar is a lower bound.`,
  final: (s) => `Mean of the last ${s.final_fraction * 100} % of the checkpoints. Box: quartiles; whiskers: worst and best seed; a dot per seed.`,
  overall: (s) => `Normalised final return: 0 is random play, 1 the optimum. Runs are resampled within each task (stratified bootstrap, ${formatCount(s.aggregate_resamples)} resamples, percentile). These figures are over the tasks they name, whatever is picked above.`,
  ablations: () => "Variant minus full method in mean return over training, paired by seed, with the 95 % bootstrap interval: left of zero, the part that was taken away or changed had helped.",
  costs: () => "Speed of training in environment steps of all seeds together per second, median over logged chunks with updates; evaluation is not counted. Relative cost: speed of ddqn divided by it, on the same task, device and number of seeds. Settings of presets count: more updates per step cost more.",
  groups: () => "The group that the certified transforms of each seed generate at the end of training, and the relabelling of actions by the transforms of the first seed.",
  hasse: () => "The order that a run's own evidence gives on value slots, from an inspection inside the run folder; larger values above and in stronger colour; what is compared with nothing stands below.",
  diagnostics: () => "Means over seeds out of the logs; the band is the range from the lowest to the highest seed. Not every method logs every field.",
};

function makeSections(data) {
  const found = [
    { id: "curves", title: "Learning curves", cards: data.tasks.map((task, t) => curveCard(data, task, t)) },
    { id: "speed", title: "Speed of learning", cards: data.tasks.flatMap((task, t) => speedCards(data, task, t)) },
    { id: "final", title: "Final return", cards: data.tasks.map((task, t) => finalCard(data, task, t)) },
    { id: "overall", title: "Over all tasks", cards: data.aggregates.flatMap((one, i) => overallCards(data, one, i)) },
    { id: "ablations", title: "Ablations", cards: data.tasks.flatMap((task, t) => (task.ablations.length ? [ablationCard(data, task, t)] : [])) },
    { id: "costs", title: "Step costs", cards: data.tasks.flatMap((task, t) => (task.costs.length ? [costCard(data, task, t)] : [])) },
    { id: "groups", title: "Recovered groups", cards: data.tasks.flatMap((task, t) => task.groups.map((group) => groupCard(data, task, t, group))) },
    { id: "hasse", title: "Orders", cards: data.hasse.map((one) => hasseCard(data, one)) },
    diagnosticsSection(data),
  ];
  return found.filter((section) => section && section.cards.length)
    .map((section) => ({ intro: SECTION_INTROS[section.id](data.settings), ...section }));
}

/* ---- shared pieces ---- */

function taskFacts(task) {
  const seeds = [...new Set(task.curves.map((curve) => curve.seeds))].sort((a, b) => a - b);
  const several = seeds.length > 1 ? `${seeds[0]}–${seeds[seeds.length - 1]}` : seeds[0];
  return `${several} seed${several === 1 ? "" : "s"}, ${formatCount(task.budget)} steps, ${task.exact ? "exact expected returns" : "sampled episodes"}`;
}

function runsOf(task, shown) {
  return task.curves.filter((curve) => shown(curve.m)).flatMap((curve) => curve.runs);
}

function asSeries(data, curve, name) {
  const method = data.methods[curve.m];
  return { name: name || method.name, colour: colourOf(method), dash: DASHES[method.dashes], x: curve.steps, y: curve.y, low: curve.low, high: curve.high };
}

function pickedRows(task, shown) { return task.rows.filter((row) => shown(row.m)); }

function methodRow(data, m, rest) {
  return { name: data.methods[m].name, colour: colourOf(data.methods[m]), ...rest };
}

function curveRows(data, curves) {
  const lines = curves.flatMap((curve) => curve.steps.map((step, i) =>
    [data.methods[curve.m].name, formatCount(step), curve.y[i], curve.low ? curve.low[i] : "", curve.high ? curve.high[i] : ""]));
  return { titles: ["method", "step", "mean", "low", "high"], lines };
}

/* ---- cards ---- */

function curveCard(data, task, t) {
  const picked = (shown) => task.curves.filter((curve) => shown(curve.m));
  return {
    title: task.label, facts: taskFacts(task), task: t, files: [task.figures[0]],
    draw(width, shown) {
      const curves = picked(shown);
      if (!curves.length) return null;
      const references = [["optimum", task.optimum, false], ["threshold", task.threshold, true]]
        .filter(([, value]) => value !== null).map(([name, value, below]) => ({ name, value, below }));
      return lineChart(width, { label: `Learning curves on ${task.label}`, series: curves.map((curve) => asSeries(data, curve)),
        references, xTitle: "environment steps", yTitle: task.exact ? "expected return" : "return", xRange: [0, task.budget] });
    },
    rows: (shown) => curveRows(data, picked(shown)),
    runs: (shown) => runsOf(task, shown),
  };
}

function speedCards(data, task, t) {
  const about = { task: t, files: [task.figures[1]], runs: (shown) => runsOf(task, shown) };
  const cards = [{
    ...about, title: task.label, facts: "mean return over training",
    draw: (width, shown) => aucChart(data, task, width, pickedRows(task, shown)),
    rows: (shown) => ({ titles: ["method", "AUC@N", "low", "high", "AUC@N / N", "low", "high"],
      lines: pickedRows(task, shown).map((row) => [data.methods[row.m].name, ...row.auc, ...row.mean]) }),
  }];
  if (task.threshold !== null) {
    cards.push({
      ...about, title: task.label, facts: `steps to a return of ${formatNumber(task.threshold)}`,
      draw: (width, shown) => stepsChart(data, task, width, pickedRows(task, shown)),
      rows: (shown) => ({ titles: ["method", "seed", "steps"], lines: pickedRows(task, shown).flatMap((row) =>
        row.seeds.map((seed, i) => [data.methods[row.m].name, seed, row.steps.by_seed[i]])) }),
    });
  }
  return cards;
}

function aucChart(data, task, width, rows) {
  if (!rows.length) return null;
  const values = rows.flatMap((row) => row.mean).filter((value) => value !== null);
  const least = Math.min(...values);
  // Bars of negative returns begin at random play, so that their length is what was gained.
  const base = least >= 0 ? 0 : task.random !== null && task.random < least ? task.random : extent(values, 0.08)[0];
  return barChart(width, { label: `Mean return over training on ${task.label}`, base,
    xTitle: base === 0 ? "mean return over training" : base === task.random ? "mean return over training, from random play" : "mean return over training (axis does not begin at 0)",
    rows: rows.map((row) => methodRow(data, row.m, { value: row.mean[0], low: row.mean[1], high: row.mean[2],
      tip: [{ name: "mean return", value: formatInterval(row.mean) }, { name: "AUC@N", value: formatInterval(row.auc) }] })) });
}

function stepsChart(data, task, width, rows) {
  if (!rows.length) return null;
  return barChart(width, { label: `Steps to threshold on ${task.label}`, base: 0, xTitle: "environment steps, median over seeds",
    rows: rows.map((row) => methodRow(data, row.m, { value: row.steps.median, hollow: row.steps.bound,
      note: `${row.steps.reached}/${row.seeds.length}`,
      tip: [{ name: row.steps.bound ? "median at least" : "median", value: formatCount(row.steps.median) },
        { name: "seeds that got there", value: `${row.steps.reached} of ${row.seeds.length}` }] })) });
}

function finalCard(data, task, t) {
  return {
    title: task.label, facts: taskFacts(task), task: t, files: [task.figures[1]],
    draw(width, shown) {
      const rows = pickedRows(task, shown);
      if (!rows.length) return null;
      return boxChart(width, { label: `Final returns on ${task.label}`, xTitle: "final return",
        rows: rows.map((row) => methodRow(data, row.m, { box: row.box, values: row.final, tip: [
          ["best seed", row.box[4]], ["upper quartile", row.box[3]], ["median", row.box[2]], ["lower quartile", row.box[1]], ["worst seed", row.box[0]],
        ].map(([name, value]) => ({ name, value: formatNumber(value) })) })) });
    },
    rows: (shown) => ({ titles: ["method", "seed", "final return"], lines: pickedRows(task, shown).flatMap((row) =>
      row.seeds.map((seed, i) => [data.methods[row.m].name, seed, row.final[i]])) }),
    runs: (shown) => runsOf(task, shown),
  };
}

function overallCards(data, one, place) {
  const picked = (shown) => one.methods.filter((method) => shown(method.m));
  const runs = (shown) => one.tasks.flatMap((t) => runsOf(data.tasks[t], shown));
  const about = { facts: `${one.title}: ${one.tasks.map((t) => data.tasks[t].label).join(", ")}`, task: null, files: [data.profiles[place]], runs };
  const profile = {
    ...about, title: "Performance profiles",
    draw(width, shown) {
      const methods = picked(shown);
      if (!methods.length) return null;
      return lineChart(width, { label: "Performance profiles", xTitle: "normalised final return", yTitle: "share of runs above", xName: "score",
        xRange: [0, 1], yRange: [0, 1.02], series: methods.map((method) => asSeries(data, { ...method, steps: one.levels })) });
    },
    rows: (shown) => curveRows(data, picked(shown).map((method) => ({ ...method, steps: one.levels }))),
  };
  const iqm = {
    ...about, title: "Interquartile mean",
    draw(width, shown) {
      const methods = picked(shown).sort((a, b) => b.iqm[0] - a.iqm[0]);
      if (!methods.length) return null;
      return forestChart(width, { label: "Interquartile means", zero: null, xTitle: "normalised final return", rows: methods.map((method) => methodRow(data, method.m, {
        value: method.iqm[0], low: method.iqm[1], high: method.iqm[2],
        tip: [{ name: "interquartile mean", value: formatInterval(method.iqm) }, { name: "seeds on every task", value: String(method.seeds) }] })) });
    },
    rows: (shown) => ({ titles: ["method", "IQM", "low", "high", "seeds"], lines: picked(shown).map((method) => [data.methods[method.m].name, ...method.iqm, method.seeds]) }),
  };
  const improvement = {
    ...about, full: one.methods.length > 5, title: "Probability of improvement", facts: "chance that a run of the row scores above a run of the column, mean over tasks; ties count one half",
    draw: (width, shown) => improvementTable(data, one, picked(shown).map((method) => method.m)),
    rows: (shown) => ({ titles: ["row", "column", "probability", "low", "high"], lines: one.improvements
      .filter((pair) => shown(pair.first) && shown(pair.second)).map((pair) => [data.methods[pair.first].name, data.methods[pair.second].name, ...pair.p]) }),
  };
  return [profile, iqm, improvement];
}

function improvementTable(data, one, methods) {
  if (methods.length < 2) return null;
  const chance = new Map();
  for (const { first, second, p } of one.improvements) {
    chance.set(`${first} ${second}`, p);
    chance.set(`${second} ${first}`, p[1] === null ? [1 - p[0], null, null] : [1 - p[0], 1 - p[2], 1 - p[1]]);
  }
  const cell = (row, column) => {
    if (row === column) return html("td", { class: "cell" }, "–");
    const p = chance.get(`${row} ${column}`), strength = Math.round(Math.abs(p[0] - 0.5) * 110);
    const colour = p[0] >= 0.5 ? "var(--c2)" : "var(--c1)";
    const node = html("td", { class: "cell", style: { background: `color-mix(in srgb, ${colour} ${strength}%, var(--card))` } }, p[0].toFixed(2));
    return withTip(node, `${data.methods[row].name} above ${data.methods[column].name}`, [{ name: "probability", value: formatInterval(p) }]);
  };
  const name = (m) => [swatch(data.methods[m]), data.methods[m].name];
  return html("div", { style: { overflowX: "auto" } }, html("table", { class: "matrix" },
    html("thead", {}, html("tr", {}, html("th", {}, ""), ...methods.map((m) => html("th", {}, ...name(m))))),
    html("tbody", {}, ...methods.map((row) => html("tr", {}, html("th", {}, ...name(row)), ...methods.map((column) => cell(row, column)))))));
}

function ablationCard(data, task, t) {
  const picked = (shown) => task.ablations.filter((one) => shown(one.m) && shown(one.full));
  return {
    title: task.label, facts: "", task: t, files: [],
    draw(width, shown) {
      const rows = picked(shown);
      if (!rows.length) return null;
      return forestChart(width, { label: `Ablations on ${task.label}`, xTitle: "difference in mean return over training", rows: rows.map((one) => ({
        name: `${data.methods[one.m].name} − ${data.methods[one.full].name}`, colour: colourOf(data.methods[one.m]),
        value: one.difference[0], low: one.difference[1], high: one.difference[2],
        tip: [{ name: one.change, value: formatInterval(one.difference) }, { name: "paired seeds", value: String(one.pairs) }] })) });
    },
    rows: (shown) => ({ titles: ["variant", "full method", "change", "difference", "low", "high", "pairs"], lines: picked(shown).map((one) =>
      [data.methods[one.m].name, data.methods[one.full].name, one.change, ...one.difference, one.pairs]) }),
    runs: (shown) => runsOf(task, shown),
  };
}

function costCard(data, task, t) {
  const picked = (shown) => task.costs.filter((cost) => shown(cost.m));
  return {
    title: task.label, facts: [...new Set(task.costs.map((cost) => `${cost.seeds} seed${cost.seeds === 1 ? "" : "s"} on ${cost.device}`))].join("; "), task: t, files: [],
    draw(width, shown) {
      const rows = picked(shown);
      if (!rows.length) return null;
      return barChart(width, { label: `Step costs on ${task.label}`, base: 0, xTitle: "steps per second", rows: rows.map((cost) => methodRow(data, cost.m, {
        value: cost.rate, note: cost.relative === null ? "" : `×${formatNumber(Number(cost.relative.toPrecision(2)))}`,
        tip: [{ name: "steps per second", value: formatNumber(cost.rate) }, { name: "training", value: `${formatNumber(cost.wall)} s` },
          { name: "cost of a step, ddqn = 1", value: cost.relative === null ? "not comparable" : formatNumber(cost.relative) }] })) });
    },
    rows: (shown) => ({ titles: ["method", "steps per second", "training, s", "seeds", "device", "relative cost"], lines: picked(shown).map((cost) =>
      [data.methods[cost.m].name, cost.rate, cost.wall, cost.seeds, cost.device, cost.relative === null ? "" : cost.relative]) }),
    runs: (shown) => runsOf(task, shown),
  };
}

function groupCard(data, task, t, group) {
  const counts = new Map();
  for (const seed of group.seeds) {
    const name = seed.order > 1 ? `${seed.name}, order ${seed.order}` : "no symmetry";
    counts.set(name, (counts.get(name) || 0) + 1);
  }
  const told = [...counts].map(([name, count]) => `${name}: ${count} of ${group.seeds.length} seeds`).join("; ");
  const first = group.seeds.find((seed) => seed.elements.length) || group.seeds[0];
  return {
    title: `${task.label}, ${data.methods[group.m].name}`, facts: told, task: t, files: [],
    draw(width, shown) {
      if (!shown(group.m)) return null;
      if (!first.elements.length) return html("p", { class: "quiet" }, "No transform is in force.");
      return html("div", { class: "transforms" }, ...first.elements.map((one) => html("div", { class: "transform" },
        one.relabel ? permutationChart(one.relabel, one.name) : null, html("div", {}, one.name),
        html("div", {}, one.status === "certified" && one.certified !== null ? `certified at ${formatNumber(one.certified)}` : one.status))));
    },
    rows: () => ({ titles: ["seed", "group", "order", "transforms", "names"], lines: group.seeds.map((seed) =>
      [seed.seed, seed.name, seed.order, seed.transforms, seed.elements.map((one) => `${one.name} (${one.status})`).join(", ")]) }),
    runs: () => [group.run],
  };
}

function hasseCard(data, one) {
  const task = data.tasks[one.task];
  const size = one.size === undefined ? "" : `, ${one.size} relations, width ${one.width}, height ${one.height}`;
  return {
    title: `${task.label}, ${data.methods[one.m].name}`, facts: `seed ${one.seed}, step ${one.step}: ${one.labels.length} ${one.named ? "states" : "slots"}${size}`, task: one.task, files: [],
    draw: (width, shown) => (shown(one.m) ? hasseChart(width, { label: `Hasse diagram, ${task.label}`, ...one }) : null),
    rows: () => ({ titles: ["upper", "lower", "upper value", "lower value"], lines: one.covers.map(([upper, lower]) =>
      [one.labels[upper], one.labels[lower], one.values[upper], one.values[lower]]) }),
    runs: () => [one.run],
  };
}

/* ---- diagnostics: one field at a time ---- */

function diagnosticsSection(data) {
  const fields = Object.keys(data.fields).filter((field) => data.tasks.some((task) => task.diagnostics[field]));
  if (!fields.length) return null;
  const state = { field: fields[0], log: false };
  const cards = data.tasks.map((task, t) => {
    const picked = (shown) => (task.diagnostics[state.field] || []).filter((curve) => shown(curve.m));
    return {
      title: task.label, facts: "", task: t, files: [],
      draw(width, shown) {
        const curves = picked(shown);
        if (!curves.length) return null;
        return lineChart(width, { label: `${data.fields[state.field]} on ${task.label}`, log: state.log, series: curves.map((curve) => asSeries(data, curve)),
          xTitle: "environment steps", yTitle: data.fields[state.field], xRange: [0, task.budget] });
      },
      rows: (shown) => curveRows(data, picked(shown)),
      runs: (shown) => picked(shown).flatMap((curve) => curve.runs),
    };
  });
  return { id: "diagnostics", title: "Violations and residuals", cards, tools: (redraw) => diagnosticsTools(data, fields, state, redraw) };
}

function diagnosticsTools(data, fields, state, redraw) {
  const buttons = fields.map((field) => html("button", { type: "button", class: "chip", "data-field": field, "aria-pressed": String(field === state.field) }, data.fields[field]));
  buttons.forEach((button, i) => button.addEventListener("click", () => {
    state.field = fields[i];
    buttons.forEach((other, j) => other.setAttribute("aria-pressed", String(i === j)));
    redraw();
  }));
  const log = html("button", { type: "button", class: "plain", "aria-pressed": "false" }, "log scale: off");
  log.addEventListener("click", () => {
    state.log = !state.log;
    log.replaceChildren(`log scale: ${state.log ? "on" : "off"}`);
    log.setAttribute("aria-pressed", String(state.log));
    redraw();
  });
  return html("div", { class: "tools" }, ...buttons, log);
}
