// What the market view shows: the table of choice sets, the changes, the saved scenarios and the columns in money.
//
//   source     "table" (of the server), "file" (opened by the user) or "sample" (stored with the model)
//   file       name of the opened file, or null
//   by         column of the segments, or null
//   revenue, unitCost   columns in money, or null
//   model      "main" or "baseline"
//   rule       null for the model's own prediction, or how the people of a hierarchical logit choose: "logit" or
//              "first-choice"
//   limits     limits of the segments of a numeric column, as the user wrote them, or an empty text
//   own        names of the alternatives that the user sells
//   curve      {column, of, range} of the curves, and best  {product, goal, price, range} of the searches
//   measure    the figure of the scenarios side by side; null, as in curve and best, until the user chooses
//   changes    [{text, words}]   in the language of scenarios, and in words
//   scenarios  [{name, changes}]   saved by the user
//
// The address contains the settings for which the server had an answer. The text of a file is not part of it. Changes can
// be undone until another file is opened.

import { dropsAll } from "./language.js";

const MAX_UNDO = 100; // earlier settings
const NO_CHOICES = {
  limits: "",
  rule: null,
  curve: { column: null, of: null, range: null },
  best: { product: null, goal: null, price: null, range: null },
  measure: null,
};

export class MarketSettings {
  constructor(store) {
    this.store = store;
    this.columns = store.schema.columns;
    this.listeners = [];
    this.text = null; // of the opened file
    this.version = 0; // of the opened file
    this.past = [];
    this.future = [];
    this.value = decode(store.market, store.schema) ?? this.defaults();
  }

  /** Take the settings from the address again. */
  reload() {
    this.change(() => (this.value = decode(this.store.market, this.store.schema) ?? this.value));
  }

  defaults() {
    const [money] = this.revenueColumns();
    const source = this.defaultSource();
    const revenue = money?.money ? money.name : null;
    const columns = { by: null, revenue, unitCost: null, model: "main" };
    return { source, file: null, ...columns, own: [], changes: [], scenarios: [], ...structuredClone(NO_CHOICES) };
  }

  /** The table of the server, or else the choice sets of the model, or else a file that is still to be opened. */
  defaultSource() {
    if (this.store.schema.table) return "table";
    return this.store.examples.length ? "sample" : "file";
  }

  /** The columns that can be revenue: those in money or, if no column is declared as money, all numbers. */
  revenueColumns() {
    const numbers = this.columns.filter((column) => column.role === "feature" && column.kind === "number");
    const money = numbers.filter((column) => column.money);
    return money.length ? money : numbers;
  }

  onChange(listener) {
    this.listeners.push(listener);
  }

  /** Change the value in place, so that it can be undone. */
  change(edit) {
    const before = JSON.stringify(this.value);
    edit(this.value);
    if (JSON.stringify(this.value) !== before) {
      this.past = [...this.past.slice(1 - MAX_UNDO), before];
      this.future = [];
    }
    this.notify();
  }

  notify() {
    for (const listener of this.listeners) listener();
  }

  undo() {
    this.restore(this.past, this.future);
  }

  redo() {
    this.restore(this.future, this.past);
  }

  /** Restore the last settings of `from`, and append the current settings to `to`. */
  restore(from, to) {
    const settings = from.pop();
    if (settings === undefined) return;
    to.push(JSON.stringify(this.value));
    this.value = JSON.parse(settings);
    this.notify();
  }

  openFile(name, text) {
    this.text = text;
    this.version += 1;
    Object.assign(this.value, { source: "file", file: name });
    [this.past, this.future] = [[], []]; // they may be those of another file
    this.notify();
  }

  /** Whether the table is available: a link to a file does not contain the file. */
  hasTable() {
    return this.value.source !== "file" || this.text !== null;
  }

  /** The table in a request. */
  table() {
    if (this.value.source === "table") return { table: true };
    return this.value.source === "file" ? { csv: this.text } : { sets: this.store.examples };
  }

  /** The grouping of a request: null for labels, a column, or a numeric column with its limits: "distance: 300, 600". */
  grouping() {
    const { by, limits } = this.value;
    return by !== null && limits !== "" ? `${by}: ${limits}` : by;
  }

  /** Number of people whose part-worths the model has, or null. */
  people() {
    const { schema } = this.store;
    return (this.value.model === "main" ? schema : schema.baseline).people;
  }

  /** The rule of a request: one that the model does not have is left out. */
  rule() {
    return this.people() === null ? null : this.value.rule;
  }

  /** A key that changes with everything that figures depend on, except for the groups. */
  figuresKey() {
    const { model, revenue, unitCost, changes } = this.value;
    return JSON.stringify([this.tableKey(), model, this.rule(), revenue, unitCost, changes.map(({ text }) => text)]);
  }

  /** A key that changes with the table. */
  tableKey() {
    return this.value.source === "file" ? `file ${this.version}` : this.value.source;
  }

  /** Name of the table for people, and for the command line. */
  tableName() {
    if (this.value.source === "table") return this.store.schema.table.name;
    return this.value.source === "file" ? this.value.file : "table.csv";
  }

  /** Title and unit of a column, which may be one that the model does not use. */
  titles(name) {
    return this.columns.find((column) => column.name === name) ?? { name, title: name, unit: "", money: false };
  }

  /** Labels of the table and of alternatives that the changes add, without dropped ones; null without labels. */
  labels(description) {
    if (description.labels === null) return null;
    const matches = this.value.changes.map(({ text }) => text.match(/^add (?:'([^']+)'|"([^"]+)"|(\S+)) like /));
    const names = matches.filter(Boolean).map(([, single, double, plain]) => single ?? double ?? plain);
    const { label } = this.store.schema;
    return [...new Set([...description.labels, ...names])].filter((name) => !this.isDropped(label, name));
  }

  /** Whether the changes drop all alternatives with a name. */
  isDropped(column, name) {
    return this.value.changes.some(({ text }) => dropsAll(text, column, name));
  }

  addScenario() {
    const { scenarios, changes } = this.value;
    const taken = scenarios.map((scenario) => scenario.name);
    let number = scenarios.length + 1;
    while (taken.includes(`Scenario ${number}`)) number += 1;
    this.change(() => scenarios.push({ name: `Scenario ${number}`, changes: [...changes] }));
  }

  encode() {
    const { changes, scenarios, ...others } = this.value;
    const pairs = (list) => list.map(({ text, words }) => [text, words]);
    return {
      ...others,
      changes: pairs(changes),
      scenarios: scenarios.map((scenario) => [scenario.name, pairs(scenario.changes)]),
    };
  }
}

/** Return the settings of a link, or null if there are none or if they are not valid. */
function decode(read, schema) {
  if (typeof read !== "object" || read === null) return null;
  const name = (value) => (typeof value === "string" ? value : null);
  const changes = (list) => list.map(([text, words]) => ({ text: String(text), words: String(words) }));
  const choices = (key) =>
    Object.fromEntries(Object.keys(NO_CHOICES[key]).map((choice) => [choice, name(read[key]?.[choice])]));
  try {
    return {
      source: read.source === "sample" || (read.source === "table" && schema.table) ? read.source : "file",
      file: name(read.file),
      by: name(read.by),
      revenue: name(read.revenue),
      unitCost: name(read.unitCost),
      limits: name(read.limits) ?? "",
      rule: name(read.rule),
      curve: choices("curve"),
      best: choices("best"),
      measure: name(read.measure),
      model: read.model === "baseline" && schema.has_baseline ? "baseline" : "main",
      own: (read.own ?? []).map(String),
      changes: changes(read.changes),
      scenarios: read.scenarios.map(([title, list]) => ({ name: String(title), changes: changes(list) })),
    };
  } catch {
    return null;
  }
}
