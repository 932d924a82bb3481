// The state of the page. It is stored in the address, so that links and reloads restore it. Changes can be undone.
//
// The address contains only states that the model has predicted, so that links work for others. Until then, the state
// is a draft in the storage of the tab, which a reload restores.
//
//   individual  {column: value}
//   rows        [{id, name, values: {column: value}, mark}]   mark: the reference probability for changes
//   map         {a, b, c: row ids, x, y: features, model, among}   null: the page chooses
//   scenarios   [{name, individual, rows: [{name, values}]}]   saved by the user
//
// The address also contains the settings of the market view, and which of the two views is shown.
//
// A value is a number, a category, one of the kinds in contents.js, or typed text that is not a valid number.

import { emptyValues } from "./contents.js";
import { exact } from "./format.js";
import { makeSpan } from "./scale.js";

const MAX_UNDO = 100; // earlier states
const MAX_ADDRESS_LENGTH = 1e6; // characters; browsers do not accept more, so many pictures do not fit
const DRAFT = "pcmcnet-draft";
const UNRELATED_CHANGES = ["map", "mark", "scenarios"]; // they do not change the choice set
const ADDRESS_INTERVAL_MS = 100; // browsers allow 200 changes of the address in 10 seconds

export class Store {
  constructor(schema, examples) {
    this.schema = schema;
    this.examples = examples;
    this.exampleIndex = 0;
    for (const column of schema.columns) {
      column.whole = isWhole(column, examples[0]);
      column.isSwitch = column.field === "number" && column.whole && column.min === 0 && column.max === 1;
    }
    this.individualColumns = schema.columns.filter((column) => column.role === "individual");
    this.features = schema.columns.filter((column) => column.role !== "individual"); // with labels and availability
    this.label = this.features.find((column) => column.role === "alternative");
    this.listeners = [];
    this.past = [];
    this.future = [];
    this.spans = new Map(); // column -> scale of its slider, for the choice set that was opened last
    this.lastId = 0;
    this.value = this.fromExample();
    this.market = null; // settings of the market view, with an answer of the server
    this.view = "set"; // or "market"
    this.saved = this.encode();
    this.confirmed = this.saved; // the last state that the model has predicted
    this.addressTimer = 0;
    this.isPredicted = false; // whether the model has predicted the choice set
    this.isFromLink = false; // whether the state comes from the address, and nothing has changed since
  }

  // -- change ----------------------------------------------------------------------------------------------------

  /** Call `listener` after every change with its kind: "cell", "rows", "map", "mark", "scenarios" or "all". */
  onChange(listener) {
    this.listeners.push(listener);
  }

  /** Change the value in place. Consecutive changes with the same `target`, such as one cell, are undone together. */
  change(kind, edit, target = null) {
    if (target === null || target !== this.lastTarget) this.past = [...this.past.slice(1 - MAX_UNDO), this.encode()];
    this.lastTarget = target;
    this.future = [];
    this.isFromLink = false;
    edit(this.value);
    this.notify(kind);
  }

  notify(kind) {
    if (kind === "all") this.spans.clear();
    if (!UNRELATED_CHANGES.includes(kind)) this.isPredicted = false;
    this.save();
    for (const listener of this.listeners) listener(kind);
  }

  undo() {
    this.restore(this.past, this.future);
  }

  redo() {
    this.restore(this.future, this.past);
  }

  /** Restore the last state of `from`, and append the current state to `to`. */
  restore(from, to) {
    const state = from.pop();
    if (state === undefined) return;
    to.push(this.encode());
    this.lastTarget = null;
    this.value = this.decode(state);
    this.notify("all");
  }

  reset() {
    this.exampleIndex = 0;
    this.show(this.fromExample());
  }

  /** Show the next example, a choice set of the training table. */
  nextExample() {
    this.exampleIndex = (this.exampleIndex + 1) % this.examples.length;
    this.show(this.fromExample());
  }

  /** Show a choice set: {individual, rows: [{name, values, mark}]}; the mark may be missing. Scenarios are kept. */
  load({ individual, rows }) {
    const newRow = ({ name, values, mark = null }, k) => ({ ...this.newRow(name ?? letters(k), values), mark });
    const alternatives = rows.map(newRow);
    this.show({ individual: { ...this.typicalValues(this.individualColumns), ...individual }, rows: alternatives });
  }

  show({ individual, rows }) {
    this.change("all", (value) => {
      value.individual = individual;
      value.rows = rows;
      value.map = { ...this.newMap(), model: value.map.model };
    });
  }

  newRow(name, values) {
    const missing = this.features.filter((column) => !(column.name in values));
    return { id: this.nextId(), name, values: { ...this.typicalValues(missing), ...values }, mark: null };
  }

  /** The scale of a slider and of the arrow keys, from the values on the page. */
  span(column) {
    if (!this.spans.has(column.name)) {
      const { individual, rows } = this.value;
      const values = column.role === "individual" ? [individual] : rows.map((row) => row.values);
      this.spans.set(column.name, makeSpan(column, values.map((row) => row[column.name])));
    }
    return this.spans.get(column.name);
  }

  // -- rows ------------------------------------------------------------------------------------------------------

  row(id) {
    return this.value.rows.find((row) => row.id === id);
  }

  /** Insert a row after row number `after`. Returns its id. */
  addRow(after, values, wanted) {
    const name = this.freeName(wanted);
    const label = this.label === undefined ? {} : { [this.label.name]: name }; // labels are unique within a set
    const row = { id: this.nextId(), name, values: { ...values, ...label }, mark: null };
    this.change("rows", ({ rows }) => rows.splice(after + 1, 0, row));
    return row.id;
  }

  removeRow(id) {
    this.change("rows", (value) => {
      value.rows = value.rows.filter((row) => row.id !== id);
      for (const role of ["a", "b", "c"]) if (value.map[role] === id) value.map[role] = null;
    });
  }

  setValue(id, column, value) {
    const edit = () => {
      const row = this.row(id);
      row.values[column.name] = value;
      if (column === this.label) row.name = String(value);
    };
    this.change("cell", edit, `${column.name} ${id}`);
  }

  /** Values of an average alternative: medians of numbers, and the most frequent value of other columns. */
  middleValues() {
    const middle = (column) => {
      const values = this.value.rows.map((row) => row.values[column.name]);
      const numbers = values.filter((value) => typeof value === "number").sort((one, other) => one - other);
      if (column.field === "number" && numbers.length) {
        const [low, high] = [numbers[(numbers.length - 1) >> 1], numbers[numbers.length >> 1]];
        return column.whole ? low : exact((low + high) / 2);
      }
      const text = values.map((value) => JSON.stringify(value));
      const count = (one) => text.filter((other) => other === one).length;
      return text.length ? JSON.parse(text.reduce((best, one) => (count(one) > count(best) ? one : best))) : undefined;
    };
    return Object.fromEntries(this.features.map((column) => [column.name, middle(column) ?? this.typical(column)]));
  }

  typicalValues(columns) {
    return Object.fromEntries(columns.map((column) => [column.name, this.typical(column)]));
  }

  typical(column) {
    const inUse = this.value?.rows[0]?.values[column.name];
    if (column.field in emptyValues) return inUse ?? emptyValues[column.field](column);
    const none = { number: 0, category: "", flag: true }[column.field];
    return column.typical ?? inUse ?? column.categories?.[0] ?? none;
  }

  nextId() {
    this.lastId += 1;
    return this.lastId;
  }

  /** Return an unused label of the training data, or else `wanted`, with a number if that name is taken. */
  freeName(wanted) {
    const taken = new Set(this.value.rows.map((row) => row.name));
    const label = this.label?.categories?.find((name) => !taken.has(name));
    if (label !== undefined) return label;
    for (let k = 1; ; k += 1) {
      const name = k === 1 ? wanted : `${wanted} ${k}`;
      if (!taken.has(name)) return name;
    }
  }

  // -- requests --------------------------------------------------------------------------------------------------

  /** The choice set in the format of the server. */
  choiceSet() {
    return {
      individual: { ...this.value.individual },
      alternatives: this.value.rows.map((row) => ({ ...row.values })),
    };
  }

  fromExample() {
    const { individual, alternatives } = this.examples[this.exampleIndex] ?? this.typicalSet();
    const rows = alternatives.map((values, k) => this.newRow(String(values[this.schema.label] ?? letters(k)), values));
    return { individual: { ...individual }, rows, map: this.newMap(), scenarios: [] };
  }

  /** Replaces the example if the model was saved without one. */
  typicalSet() {
    const names = this.label?.categories ?? [];
    const alternatives = [0, 1, 2].map((k) => {
      const label = this.label === undefined ? {} : { [this.label.name]: names[k] ?? letters(k) };
      return { ...this.typicalValues(this.features), ...label };
    });
    return { individual: this.typicalValues(this.individualColumns), alternatives };
  }

  newMap() {
    return { a: null, b: null, c: null, x: null, y: null, model: "main", among: "three" };
  }

  // -- address ---------------------------------------------------------------------------------------------------

  encode() {
    const { individual, rows, map, scenarios } = this.value;
    const place = (id) => rows.findIndex((row) => row.id === id);
    return JSON.stringify({
      v: 1,
      columns: this.schema.columns.map((column) => column.name),
      individual: this.individualColumns.map((column) => individual[column.name]),
      rows: rows.map((row) => [
        row.name,
        row.mark === null ? null : Number(row.mark.toFixed(5)),
        ...this.features.map((column) => row.values[column.name]),
      ]),
      map: [place(map.a), place(map.b), place(map.c), map.x, map.y, map.model, map.among],
      scenarios: scenarios.map((scenario) => [
        scenario.name,
        this.individualColumns.map((column) => scenario.individual[column.name]),
        scenario.rows.map((row) => [row.name, ...this.features.map((column) => row.values[column.name])]),
      ]),
    });
  }

  /** Return the state; raises if the text belongs to another model or is not a state. */
  decode(text) {
    const read = JSON.parse(text);
    const names = this.schema.columns.map((column) => column.name);
    if (read.v !== 1 || JSON.stringify(read.columns) !== JSON.stringify(names)) throw new Error("other columns");
    if (!Array.isArray(read.rows) || read.rows.length === 0) throw new Error("no alternatives");
    const clean = (value) => {
      if (Array.isArray(value)) return value.filter((item) => ["number", "string"].includes(typeof item));
      return ["number", "string", "boolean"].includes(typeof value) || value === null ? value : "";
    };
    const values = (columns, list) =>
      Object.fromEntries(columns.map((column, k) => [column.name, clean(list[k])]));
    const rows = read.rows.map(([name, mark, ...list]) => ({
      id: this.nextId(),
      name: String(name),
      values: values(this.features, list),
      mark: typeof mark === "number" ? mark : null,
    }));
    const scenarios = (read.scenarios ?? []).map(([name, individual, alternatives]) => ({
      name: String(name),
      individual: values(this.individualColumns, individual),
      rows: alternatives.map(([row, ...list]) => ({ name: String(row), values: values(this.features, list) })),
    }));
    const [a, b, c, x, y, model, among] = read.map;
    const feature = (name) => (this.features.some((column) => column.name === name) ? name : null);
    return {
      individual: values(this.individualColumns, read.individual),
      rows,
      scenarios,
      map: {
        ...{ a: rows[a]?.id ?? null, b: rows[b]?.id ?? null, c: rows[c]?.id ?? null },
        ...{ x: feature(x), y: feature(y) },
        model: model === "baseline" && this.schema.has_baseline ? model : "main",
        among: among === "all" ? "all" : "three",
      },
    };
  }

  /** Record that the model has predicted the choice set. */
  confirm() {
    this.isPredicted = true;
    this.confirmed = this.encode();
    this.isFromLink = false;
    this.save();
    writeDraft(null);
  }

  /** Write the address immediately, so that a reload loses nothing, but not too often. */
  save() {
    if (!this.isPredicted) {
      writeDraft({ address: location.hash, state: this.encode() });
      return;
    }
    this.unsaved = this.addressTimer !== 0;
    if (this.unsaved) return;
    this.writeAddress();
    this.addressTimer = setTimeout(() => {
      this.addressTimer = 0;
      if (this.unsaved) this.save();
    }, ADDRESS_INTERVAL_MS);
  }

  /** Store the settings of the market view, for which the server has an answer. */
  saveMarket(settings) {
    this.market = settings;
    this.saveView();
  }

  showView(view) {
    this.view = view;
    this.saveView();
  }

  saveView() {
    this.writeAddress();
    if (!this.isPredicted) writeDraft({ address: location.hash, state: this.encode() });
  }

  writeAddress() {
    if (this.isPredicted) this.confirmed = this.encode();
    const { market, view } = this;
    this.saved = market === null ? this.confirmed : JSON.stringify({ ...JSON.parse(this.confirmed), market, view });
    const hash = `#${toBase64(this.saved)}`;
    if (hash !== location.hash && hash.length < MAX_ADDRESS_LENGTH) history.replaceState(null, "", hash);
  }

  /** Read the state from the address. Returns true if it is valid, false if not, and null if there is none. */
  readAddress() {
    const hash = location.hash.slice(1);
    const draft = readDraft();
    const isDraft = draft !== null && draft.address === location.hash;
    if (!hash && !isDraft) return null;
    try {
      const text = isDraft ? draft.state : fromBase64(hash);
      if (text === this.saved) return true;
      this.value = this.decode(text);
      const { market = null, view = "set", ...confirmed } = JSON.parse(hash ? fromBase64(hash) : text);
      this.market = market;
      this.view = view === "market" ? view : "set";
      this.confirmed = JSON.stringify(confirmed);
      this.saved = text;
      this.isFromLink = !isDraft;
      return true;
    } catch {
      return false;
    }
  }
}

/** Whether a column seems to hold whole numbers, judging by its range, its quartiles and the example. */
function isWhole(column, example) {
  const shown = [example?.individual ?? {}, ...(example?.alternatives ?? [])].map((values) => values[column.name]);
  const ends = [column.min, column.max, ...shown.filter((value) => value != null)];
  return ends.every(Number.isInteger) && (column.quartiles ?? []).every((value) => Number.isInteger(4 * value));
}

/** 0 is A, 25 is Z, 26 is AA. */
function letters(k) {
  const last = String.fromCharCode(65 + (k % 26));
  return k < 26 ? last : letters(Math.floor(k / 26) - 1) + last;
}

/** Store the draft of this tab, or remove it. Pages without storage have no drafts. */
function writeDraft(draft) {
  try {
    if (draft === null) sessionStorage.removeItem(DRAFT);
    else sessionStorage.setItem(DRAFT, JSON.stringify(draft));
  } catch {
    // the storage is full or not allowed
  }
}

function readDraft() {
  try {
    return JSON.parse(sessionStorage.getItem(DRAFT));
  } catch {
    return null;
  }
}

function toBase64(text) {
  const bytes = new TextEncoder().encode(text);
  const characters = Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
  return btoa(characters).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

function fromBase64(text) {
  const characters = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  return new TextDecoder().decode(Uint8Array.from(characters, (character) => character.charCodeAt(0)));
}
