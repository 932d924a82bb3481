// What the page shows, as one value: the individual, the alternatives, what the map is about. It lives in the address,
// so that a link or a reload brings it back, and earlier values of it can be returned to.
//
//   individual  {column: value}
//   rows        [{id, name, values: {column: value}, mark}]   mark: the probability that changes are counted from
//   map         {a, b, c: row ids, x, y: features, model, among, zoom}   null where the page may choose
//   scenarios   [{name, individual, rows: [{name, values}]}]   kept by the person, to be compared
//
// A value is a number, a category, a content (see contents.js), or the text that was typed where a number was expected.

import { blank } from "./contents.js";
import { exact } from "./format.js";
import { makeSpan } from "./scale.js";

const KEPT = 100; // earlier states
const LONGEST = 1e6; // characters of an address: browsers take no more; so many pictures are not kept in it
const REST = 100; // milliseconds between two changes of the address: browsers allow 200 in 10 seconds

export class Store {
  constructor(schema, examples) {
    this.schema = schema;
    this.examples = examples;
    this.turn = 0; // which of the examples is shown
    for (const column of schema.columns) {
      column.whole = isWhole(column, examples[0]);
      column.isSwitch = column.field === "number" && column.whole && column.min === 0 && column.max === 1;
    }
    this.who = schema.columns.filter((column) => column.role === "individual");
    this.features = schema.columns.filter((column) => column.role !== "individual"); // labels and availability, too
    this.label = this.features.find((column) => column.role === "alternative");
    this.listeners = [];
    this.past = [];
    this.future = [];
    this.spans = new Map(); // column -> the scale of its slider, of the set that was opened last
    this.lastId = 0;
    this.value = this.fromExample();
    this.saved = this.encode();
    this.resting = 0;
  }

  // -- change ----------------------------------------------------------------------------------------------------

  /** Call back after every change with what kind it was: "cell", "rows", "map", "mark", "scenarios" or "all". */
  onChange(listener) {
    this.listeners.push(listener);
  }

  /** Change the value in place. Quick changes of one cell (`same`) count as one for undo. */
  change(kind, edit, same = null) {
    if (same === null || same !== this.same) this.past = [...this.past.slice(1 - KEPT), this.encode()];
    this.same = same;
    this.future = [];
    edit(this.value);
    this.tell(kind);
  }

  tell(kind, detail = undefined) {
    if (kind === "all") this.spans.clear();
    this.save();
    for (const listener of this.listeners) listener(kind, detail);
  }

  undo() {
    this.travel(this.past, this.future);
  }

  redo() {
    this.travel(this.future, this.past);
  }

  /** Go to the last of some states, and keep the present one among the others. */
  travel(from, to) {
    const there = from.pop();
    if (there === undefined) return;
    to.push(this.encode());
    this.same = null;
    this.value = this.decode(there);
    this.tell("all");
  }

  reset() {
    this.turn = 0;
    this.show(this.fromExample());
  }

  /** Show another choice set of the training table. */
  another() {
    this.turn = (this.turn + 1) % this.examples.length;
    this.show(this.fromExample());
  }

  /** Show a choice set: {individual, rows: [{name, values}]}; scenarios stay. */
  load({ individual, rows }) {
    const alternatives = rows.map(({ name, values }, k) => this.newRow(name ?? letters(k), values));
    this.show({ individual: { ...this.typicalValues(this.who), ...individual }, rows: alternatives });
  }

  show({ individual, rows }) {
    this.change("all", (value) => {
      value.individual = individual;
      value.rows = rows;
      value.map = { ...this.freshMap(), model: value.map.model, zoom: value.map.zoom };
    });
  }

  newRow(name, values) {
    const own = { ...this.typicalValues(this.features.filter((column) => !(column.name in values))), ...values };
    return { id: this.nextId(), name, values: own, mark: null };
  }

  /** The scale of a number's slider and keys: that of the set at hand. */
  span(column) {
    if (!this.spans.has(column.name)) {
      const { individual, rows } = this.value;
      const values = column.role === "individual" ? [individual] : rows.map((row) => row.values);
      this.spans.set(column.name, makeSpan(column, values.map((one) => one[column.name])));
    }
    return this.spans.get(column.name);
  }

  // -- rows ------------------------------------------------------------------------------------------------------

  row(id) {
    return this.value.rows.find((row) => row.id === id);
  }

  /** Put a row after another one: a copy of it, or the middle of the set. Returns its id. */
  addRow(after, values, wanted) {
    const name = this.freeName(wanted);
    const own = this.label === undefined ? {} : { [this.label.name]: name }; // labels are unique within a set
    const row = { id: this.nextId(), name, values: { ...values, ...own }, mark: null };
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

  /** The middle of the set at hand: medians of numbers, and what most of the others have. */
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
    if (column.field in blank) return inUse ?? blank[column.field](column);
    const none = { number: 0, category: "", flag: true }[column.field];
    return column.typical ?? inUse ?? column.categories?.[0] ?? none;
  }

  nextId() {
    this.lastId += 1;
    return this.lastId;
  }

  /** A label that is not used yet, or else the name wanted, with a number where there is one already. */
  freeName(wanted) {
    const taken = new Set(this.value.rows.map((row) => row.name));
    const label = this.label?.categories?.find((name) => !taken.has(name));
    if (label !== undefined) return label;
    for (let k = 1; ; k += 1) {
      const name = k === 1 ? wanted : `${wanted} ${k}`;
      if (!taken.has(name)) return name;
    }
  }

  // -- what the server is asked ----------------------------------------------------------------------------------

  /** The choice set as the server takes it. */
  choiceSet() {
    return {
      individual: { ...this.value.individual },
      alternatives: this.value.rows.map((row) => ({ ...row.values })),
    };
  }

  fromExample() {
    const { individual, alternatives } = this.examples[this.turn] ?? this.typicalSet();
    const rows = alternatives.map((values, k) => this.newRow(String(values[this.schema.label] ?? letters(k)), values));
    return { individual: { ...individual }, rows, map: this.freshMap(), scenarios: [] };
  }

  /** Stands in for the example of a model that was saved without one. */
  typicalSet() {
    const names = this.label?.categories ?? [];
    const alternatives = [0, 1, 2].map((k) => {
      const own = this.label === undefined ? {} : { [this.label.name]: names[k] ?? letters(k) };
      return { ...this.typicalValues(this.features), ...own };
    });
    return { individual: this.typicalValues(this.who), alternatives };
  }

  freshMap() {
    return { a: null, b: null, c: null, x: null, y: null, model: "main", among: "three", zoom: false };
  }

  // -- the address -----------------------------------------------------------------------------------------------

  encode() {
    const { individual, rows, map, scenarios } = this.value;
    const place = (id) => rows.findIndex((row) => row.id === id);
    return JSON.stringify({
      v: 1,
      columns: this.schema.columns.map((column) => column.name),
      individual: this.who.map((column) => individual[column.name]),
      rows: rows.map((row) => [
        row.name,
        row.mark === null ? null : Number(row.mark.toFixed(5)),
        ...this.features.map((column) => row.values[column.name]),
      ]),
      map: [place(map.a), place(map.b), place(map.c), map.x, map.y, map.model, map.among, map.zoom],
      scenarios: scenarios.map((scenario) => [
        scenario.name,
        this.who.map((column) => scenario.individual[column.name]),
        scenario.rows.map((row) => [row.name, ...this.features.map((column) => row.values[column.name])]),
      ]),
    });
  }

  /** Raises where the text is of another model, or none of ours. */
  decode(text) {
    const read = JSON.parse(text);
    const names = this.schema.columns.map((column) => column.name);
    if (read.v !== 1 || JSON.stringify(read.columns) !== JSON.stringify(names)) throw new Error("other columns");
    if (!Array.isArray(read.rows) || read.rows.length === 0) throw new Error("no alternatives");
    const known = (value) => {
      if (Array.isArray(value)) return value.filter((one) => ["number", "string"].includes(typeof one));
      return ["number", "string", "boolean"].includes(typeof value) || value === null ? value : "";
    };
    const values = (columns, list) =>
      Object.fromEntries(columns.map((column, k) => [column.name, known(list[k])]));
    const rows = read.rows.map(([name, mark, ...list]) => ({
      id: this.nextId(),
      name: String(name),
      values: values(this.features, list),
      mark: typeof mark === "number" ? mark : null,
    }));
    const scenarios = (read.scenarios ?? []).map(([name, individual, alternatives]) => ({
      name: String(name),
      individual: values(this.who, individual),
      rows: alternatives.map(([own, ...list]) => ({ name: String(own), values: values(this.features, list) })),
    }));
    const [a, b, c, x, y, model, among, zoom] = read.map;
    const feature = (name) => (this.features.some((column) => column.name === name) ? name : null);
    return {
      individual: values(this.who, read.individual),
      rows,
      scenarios,
      map: {
        ...{ a: rows[a]?.id ?? null, b: rows[b]?.id ?? null, c: rows[c]?.id ?? null },
        ...{ x: feature(x), y: feature(y) },
        model: model === "baseline" && this.schema.has_baseline ? model : "main",
        among: among === "all" ? "all" : "three",
        zoom: zoom === true,
      },
    };
  }

  /** Write the address: at once, so that a reload loses nothing, but not too often. */
  save() {
    this.unsaved = this.resting !== 0;
    if (this.unsaved) return;
    this.writeAddress();
    this.resting = setTimeout(() => {
      this.resting = 0;
      if (this.unsaved) this.save();
    }, REST);
  }

  writeAddress() {
    this.saved = this.encode();
    const hash = `#${toBase64(this.saved)}`;
    if (hash !== location.hash && hash.length < LONGEST) history.replaceState(null, "", hash);
  }

  /** Take the state out of the address. Returns whether it was of use: true, false, or null where there was none. */
  readAddress() {
    const hash = location.hash.slice(1);
    if (!hash) return null;
    try {
      const text = fromBase64(hash);
      if (text === this.saved) return true;
      this.value = this.decode(text);
      this.saved = text;
      return true;
    } catch {
      return false;
    }
  }
}

/** Whether a column seems to hold whole numbers: its ends, its quartiles and the example say so. */
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

function toBase64(text) {
  const bytes = new TextEncoder().encode(text);
  const characters = Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
  return btoa(characters).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

function fromBase64(text) {
  const characters = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  return new TextDecoder().decode(Uint8Array.from(characters, (character) => character.charCodeAt(0)));
}
