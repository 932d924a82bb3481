// A table of one or many choice sets, pasted or opened: one set comes onto the page, of many the answers are a file.

import { ask } from "./api.js";
import { readCsv, writeCsv, download } from "./csv.js";
import { make } from "./dom.js";
import { parse } from "./format.js";

export class Tables {
  constructor(dialog, store) {
    this.dialog = dialog;
    this.store = store;
    this.find = (name) => dialog.querySelector(`[data-table=${name}]`);
    this.find("read").addEventListener("click", () => this.read(this.find("text").value));
    this.find("file").addEventListener("change", (event) => this.open(event.target.files[0]));
    this.find("close").addEventListener("click", () => dialog.close());
    this.find("show").addEventListener("change", (event) => this.show(Number(event.target.value)));
    this.find("answers").addEventListener("click", () => this.answer());
  }

  ask() {
    const columns = this.store.schema.columns.map((column) => column.name);
    this.find("heads").textContent = [this.store.schema.choice_set, ...columns].join(", ");
    this.dialog.showModal();
    this.find("text").focus();
  }

  async open(file) {
    if (!file) return;
    this.find("text").value = await file.text();
    this.find("file").value = ""; // the same file may be chosen again
    this.read(this.find("text").value);
  }

  read(text) {
    this.find("many").hidden = true;
    try {
      this.table = readSets(text, this.store.schema);
    } catch (error) {
      this.say(error.message, true);
      return;
    }
    const { sets } = this.table;
    if (sets.length === 1) {
      this.dialog.close();
      this.store.load(sets[0]);
      return;
    }
    const rows = sets.reduce((sum, set) => sum + set.rows.length, 0);
    this.say(`${sets.length} choice sets with ${rows} alternatives.`, false);
    const options = sets.map((set, k) => make("option", { value: k }, set.id));
    this.find("show").replaceChildren(make("option", { value: "" }, "choose one"), ...options);
    this.find("many").hidden = false;
  }

  show(k) {
    if (!this.table.sets[k]) return;
    this.dialog.close();
    this.store.load(this.table.sets[k]);
  }

  say(text, bad) {
    this.find("said").textContent = text;
    this.find("said").classList.toggle("bad", bad);
  }

  /** Ask about all sets, as many at once as the server takes, and hand out the table with the answers. */
  async answer() {
    const { schema } = this.store;
    const { sets, cells, by } = this.table;
    const button = this.find("answers");
    button.disabled = true;
    try {
      const models = schema.has_baseline ? ["main", "baseline"] : ["main"];
      const heads = { main: "probability", baseline: "probability_baseline" };
      const out = cells.map((row, k) => (k === 0 ? [...row, ...models.map((model) => heads[model])] : [...row]));
      let done = 0;
      for (const part of parts(sets, schema.limits)) {
        for (const model of models) {
          const answer = await ask("v1/probabilities", { sets: part.map(toSet), model });
          part.forEach((set, k) => set.rows.forEach((row, i) => out[row.at].push(answer.sets[k].probabilities[i])));
        }
        done += part.length;
        this.say(`${done} of ${sets.length} choice sets answered.`, false);
      }
      download(writeCsv(out, by), "answers.csv");
    } catch (error) {
      this.say(error.message, true);
    } finally {
      button.disabled = false;
    }
  }
}

const toSet = ({ individual, rows }) => ({ individual, alternatives: rows.map((row) => row.values) });

/** Sets that fit into one request. */
function parts(sets, limits) {
  const found = [[]];
  let pairs = 0;
  for (const set of sets) {
    const own = set.rows.length ** 2;
    if (found[found.length - 1].length >= Math.min(limits.sets, 200) || pairs + own > limits.pairs) {
      found.push([]);
      pairs = 0;
    }
    found[found.length - 1].push(set);
    pairs += own;
  }
  return found;
}

/** Text of a table -> {sets: [{id, individual, rows: [{name, values, at}]}], cells, by}; raises what is wrong. */
export function readSets(text, schema) {
  const { cells, by } = readCsv(text);
  const [heads, ...body] = cells;
  if (!body.length) throw new Error("The table needs a line of column names, and a line for each alternative.");
  const place = (...names) => heads.findIndex((head) => names.some((name) => same(head, name)));
  const at = new Map(schema.columns.map((column) => [column, place(column.name, column.title)]));
  const missing = schema.columns.filter((column) => at.get(column) < 0 && column.required);
  if (missing.length) {
    const names = missing.map((column) => column.name).join(", ");
    throw new Error(`The table has no column ${names}. Its columns are ${heads.join(", ")}.`);
  }
  const own = place(schema.choice_set);
  const sets = new Map();
  body.forEach((row, k) => {
    const id = own < 0 ? "1" : row[own];
    if (!sets.has(id)) sets.set(id, { id, individual: null, rows: [] });
    const set = sets.get(id);
    const values = (columns) =>
      Object.fromEntries(
        columns
          .filter((column) => at.get(column) >= 0)
          .map((column) => [column.name, read(column, row[at.get(column)] ?? "", k + 2)]),
      );
    set.individual ??= values(schema.columns.filter((column) => column.role === "individual"));
    const features = values(schema.columns.filter((column) => column.role !== "individual"));
    const label = schema.columns.find((column) => column.role === "alternative");
    const name = label ? String(features[label.name]) : null;
    set.rows.push({ name, values: features, at: k + 1 });
  });
  return { sets: [...sets.values()], cells, by };
}

const same = (one, other) => one.trim().toLowerCase() === String(other).toLowerCase();

function read(column, text, line) {
  const plain = text.trim();
  if (plain === "" && column.may_be_null) return null;
  if (["number", "id"].includes(column.field)) {
    const number = parse(plain);
    if (Number.isNaN(number)) throw new Error(`Line ${line}, ${column.name}: expected a number, found "${plain}".`);
    return number;
  }
  if (column.field === "flag") return ["1", "true", "yes"].includes(plain.toLowerCase());
  if (column.field === "multi") return plain === "" ? [] : plain.split(/[;|]/).map((name) => name.trim());
  if (column.field === "vector") return plain.replace(/^\[|\]$/g, "").split(/[\s,;]+/).map(Number);
  return text;
}
