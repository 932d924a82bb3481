// Saved scenarios, compared in a table. A scenario is a name, an individual and its alternatives.

import { sendRequest } from "./api.js";
import { download, writeCsv } from "./csv.js";
import { make } from "./dom.js";
import { percent, points } from "./format.js";

const MAX_ROWS = 12; // alternatives with a row each; the others share one row, and the CSV file has all

export class Scenarios {
  constructor(root, store, report) {
    this.root = root;
    this.store = store;
    this.report = report;
    this.table = root.querySelector("table");
    this.predictions = new Map(); // choice set as JSON -> probabilities
    root.querySelector("[data-scenarios=csv]").addEventListener("click", () => this.save());
  }

  /** Save the choice set on the page as a scenario with an unused name. */
  add() {
    const taken = this.store.value.scenarios.map((scenario) => scenario.name);
    let number = taken.length + 1;
    while (taken.includes(`Scenario ${number}`)) number += 1;
    const { individual, rows } = JSON.parse(JSON.stringify(this.store.value));
    const alternatives = rows.map(({ name, values }) => ({ name, values }));
    const scenario = { name: `Scenario ${number}`, individual, rows: alternatives };
    this.store.change("scenarios", ({ scenarios }) => scenarios.push(scenario));
    this.table.querySelector("thead th:last-child input")?.select();
  }

  /** Update the table; `main` has the current probabilities by row id. */
  async update(main) {
    const { scenarios, rows } = this.store.value;
    this.root.hidden = scenarios.length === 0;
    if (this.root.hidden || !main) return;
    const keys = scenarios.map((scenario) => JSON.stringify(toSet(scenario)));
    const missing = keys.filter((key) => !this.predictions.has(key));
    try {
      if (missing.length) {
        const sets = missing.map((key) => JSON.parse(key));
        const response = await sendRequest("v1/probabilities", { sets, model: "main" });
        missing.forEach((key, k) => this.predictions.set(key, response.sets[k].probabilities));
      }
      this.report(null);
    } catch (error) {
      this.report(error);
      return;
    }
    const columns = scenarios.map((scenario, k) => byName(scenario.rows, this.predictions.get(keys[k])));
    const current = byName(rows, rows.map((row) => main.get(row.id) ?? null));
    this.draw(current, columns);
  }

  draw(current, columns) {
    const { scenarios } = this.store.value;
    const all = [current, ...columns];
    const largest = (name) => Math.max(...all.map((column) => column.get(name) ?? 0));
    const names = [...new Set(all.flatMap((column) => [...column.keys()]))];
    names.sort((one, other) => largest(other) - largest(one));
    this.cells = [
      ["alternative", "now", ...scenarios.map((scenario) => scenario.name)],
      ...names.map((name) => [name, ...all.map((column) => column.get(name) ?? "")]),
    ];
    const rest = names.length > MAX_ROWS + 1 ? names.splice(MAX_ROWS) : [];
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
    download(writeCsv(this.cells), "scenarios.csv");
  }
}

const toSet = ({ individual, rows }) => ({ individual, alternatives: rows.map(({ values }) => values) });

/** Return a map from name to probability; a repeated name gets a number. */
function byName(rows, probabilities) {
  const byUniqueName = new Map();
  rows.forEach(({ name }, k) => {
    let unique = name;
    for (let n = 2; byUniqueName.has(unique); n += 1) unique = `${name} (${n})`;
    byUniqueName.set(unique, probabilities[k]);
  });
  return byUniqueName;
}

function cell(p, current) {
  if (p == null) return make("td", { class: "none" }, "–");
  const change = current == null ? "" : points(p - current);
  return make(
    "td",
    {},
    make("span", { class: "mini", "aria-hidden": "true", style: null }, fill(p)),
    percent(p),
    make("small", { class: change.startsWith("+") ? "up" : "down" }, change),
  );
}

function fill(p) {
  const bar = make("span", { class: "fill" });
  bar.style.width = `${(100 * p).toFixed(1)}%`;
  return bar;
}
