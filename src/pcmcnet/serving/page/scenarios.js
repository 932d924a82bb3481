// Named scenarios side by side: each keeps an individual and alternatives; the model is asked about all of them at once.

import { ask } from "./api.js";
import { download, writeCsv } from "./csv.js";
import { make } from "./dom.js";
import { percent, points } from "./format.js";

const MOST = 12; // alternatives that have a line; the others share one, and the file has all

export class Scenarios {
  constructor(root, store, report) {
    this.root = root;
    this.store = store;
    this.report = report;
    this.table = root.querySelector("table");
    this.answers = new Map(); // what was asked, as text -> {name: probability}
    root.querySelector("[data-scenarios=csv]").addEventListener("click", () => this.save());
  }

  /** Keep what the page shows, by a name that is free. */
  keep() {
    const taken = this.store.value.scenarios.map((scenario) => scenario.name);
    let number = taken.length + 1;
    while (taken.includes(`Scenario ${number}`)) number += 1;
    const { individual, rows } = JSON.parse(JSON.stringify(this.store.value));
    const kept = { name: `Scenario ${number}`, individual, rows: rows.map(({ name, values }) => ({ name, values })) };
    this.store.change("scenarios", ({ scenarios }) => scenarios.push(kept));
    this.table.querySelector("thead th:last-child input")?.select();
  }

  /** Show the answers; `now` is what the bars show, by row id. */
  async update(now) {
    const { scenarios, rows } = this.store.value;
    this.root.hidden = scenarios.length === 0;
    if (this.root.hidden || !now) return;
    const keys = scenarios.map((scenario) => JSON.stringify(toSet(scenario)));
    const missing = keys.filter((key) => !this.answers.has(key));
    try {
      if (missing.length) {
        const answer = await ask("v1/probabilities", { sets: missing.map((key) => JSON.parse(key)), model: "main" });
        missing.forEach((key, k) => this.answers.set(key, answer.sets[k].probabilities));
      }
      this.report(null);
    } catch (error) {
      this.report(error);
      return;
    }
    const columns = scenarios.map((scenario, k) => byName(scenario.rows, this.answers.get(keys[k])));
    const current = byName(rows, rows.map((row) => now.get(row.id) ?? null));
    this.draw(current, columns);
  }

  draw(current, columns) {
    const { scenarios } = this.store.value;
    const all = [current, ...columns];
    const greatest = (name) => Math.max(...all.map((column) => column.get(name) ?? 0));
    const names = [...new Set(all.flatMap((column) => [...column.keys()]))];
    names.sort((one, other) => greatest(other) - greatest(one));
    this.shown = [
      ["alternative", "now", ...scenarios.map((scenario) => scenario.name)],
      ...names.map((name) => [name, ...all.map((column) => column.get(name) ?? "")]),
    ];
    const rest = names.length > MOST + 1 ? names.splice(MOST) : [];
    if (rest.length) {
      names.push(`${rest.length} others`);
      for (const column of all) column.set(names.at(-1), rest.reduce((sum, name) => sum + (column.get(name) ?? 0), 0));
    }
    const focused = document.activeElement?.dataset?.scenario;
    this.table.replaceChildren(
      make("caption", { class: "hidden" }, "Probability of each alternative in each scenario"),
      make(
        "thead",
        {},
        make(
          "tr",
          {},
          make("th", { scope: "col" }, "Alternative"),
          make("th", { scope: "col" }, "Now"),
          ...scenarios.map((scenario, k) => this.head(scenario, k)),
        ),
      ),
      make(
        "tbody",
        {},
        ...names.map((name) =>
          make(
            "tr",
            {},
            make("th", { scope: "row" }, name),
            cell(current.get(name), null),
            ...columns.map((column) => cell(column.get(name), current.get(name))),
          ),
        ),
      ),
    );
    if (focused) this.table.querySelector(`[data-scenario="${focused}"]`)?.focus();
  }

  head(scenario, k) {
    const name = make("input", {
      ...{ type: "text", maxlength: 40, "aria-label": `Name of scenario ${k + 1}`, "data-scenario": `name-${k}` },
      ...{ value: scenario.name, autocomplete: "off" },
      on: { change: () => this.store.change("scenarios", ({ scenarios }) => (scenarios[k].name = name.value)) },
    });
    const open = () => this.store.load({ individual: scenario.individual, rows: scenario.rows });
    const remove = () => this.store.change("scenarios", ({ scenarios }) => scenarios.splice(k, 1));
    const button = (text, click) =>
      make("button", { type: "button", "aria-label": `${text} ${scenario.name}`, on: { click } }, text);
    return make("th", { scope: "col" }, name, make("div", {}, button("Open", open), button("Delete", remove)));
  }

  save() {
    download(writeCsv(this.shown), "scenarios.csv");
  }
}

const toSet = ({ individual, rows }) => ({ individual, alternatives: rows.map(({ values }) => values) });

/** Name -> probability; a name that occurs again gets a number. */
function byName(rows, probabilities) {
  const found = new Map();
  rows.forEach(({ name }, k) => {
    let own = name;
    for (let n = 2; found.has(own); n += 1) own = `${name} (${n})`;
    found.set(own, probabilities[k]);
  });
  return found;
}

function cell(p, now) {
  if (p == null) return make("td", { class: "none" }, "–");
  const by = now == null ? "" : points(p - now);
  return make(
    "td",
    {},
    make("span", { class: "mini", "aria-hidden": "true", style: null }, fill(p)),
    percent(p),
    make("small", { class: by.startsWith("+") ? "up" : "down" }, by),
  );
}

function fill(p) {
  const bar = make("span", { class: "fill" });
  bar.style.width = `${(100 * p).toFixed(1)}%`;
  return bar;
}
