// Reads a table of choice sets, pasted or from a file. One set opens on the page; predictions of many are downloaded.

import { sendRequest } from "./api.js";
import { readCsv, writeCsv, download } from "./csv.js";
import { make } from "./dom.js";
import { parse } from "./format.js";

export class Tables {
  constructor(dialog, store) {
    this.dialog = dialog;
    this.store = store;
    this.find = (name) => dialog.querySelector(`[data-table=${name}]`);
    this.fileName = null;
    this.listener = null; // opens a table of many sets as a market
    this.find("read").addEventListener("click", () => this.read(this.find("text").value));
    this.find("file").addEventListener("change", (event) => this.readFile(event.target.files[0]));
    this.find("close").addEventListener("click", () => dialog.close());
    this.find("show").addEventListener("change", (event) => this.show(Number(event.target.value)));
    this.find("predict").addEventListener("click", () => this.predict());
    this.find("market").addEventListener("click", () => {
      dialog.close();
      this.listener(this.fileName ?? "pasted table", this.find("text").value);
    });
  }

  /** Call `listener` with the name and the text of a table that the user opens as a market. */
  onMarket(listener) {
    this.listener = listener;
  }

  open() {
    const columns = this.store.schema.columns.map((column) => column.name);
    this.find("heads").textContent = [this.store.schema.choice_set, ...columns].join(", ");
    this.dialog.showModal();
    this.find("text").focus();
  }

  async readFile(file) {
    if (!file) return;
    this.find("text").value = await file.text();
    this.fileName = file.name;
    this.find("file").value = ""; // otherwise choosing the same file again has no effect
    this.read(this.find("text").value);
  }

  read(text) {
    this.find("many").hidden = true;
    try {
      this.table = readSets(text, this.store.schema);
    } catch (error) {
      this.showMessage(error.message, true);
      return;
    }
    const { sets } = this.table;
    if (sets.length === 1) {
      this.dialog.close();
      this.store.load(sets[0]);
      return;
    }
    const rows = sets.reduce((sum, set) => sum + set.rows.length, 0);
    this.showMessage(`${sets.length} choice sets with ${rows} alternatives.`, false);
    const options = sets.map((set, k) => make("option", { value: k }, set.id));
    this.find("show").replaceChildren(make("option", { value: "" }, "choose one"), ...options);
    this.find("many").hidden = false;
  }

  show(k) {
    if (!this.table.sets[k]) return;
    this.dialog.close();
    this.store.load(this.table.sets[k]);
  }

  showMessage(text, isError) {
    this.find("message").textContent = text;
    this.find("message").classList.toggle("bad", isError);
  }

  /** Predict a batch. Choice sets that the baseline cannot predict have no answer; an error of the model is raised. */
  async predictBatch(batch, model) {
    try {
      return (await sendRequest("v1/probabilities", { sets: batch.map(toSet), model })).sets;
    } catch (error) {
      if (model === "main" || error.status !== 422) throw error;
      this.baselineProblem = error.message;
      return [];
    }
  }

  /** Predict all sets, in batches that the server accepts, and download the table with the probabilities. */
  async predict() {
    const { schema } = this.store;
    const { sets, cells, separator } = this.table;
    const button = this.find("predict");
    button.disabled = true;
    this.baselineProblem = null;
    try {
      const models = schema.has_baseline ? ["main", "baseline"] : ["main"];
      const heads = { main: "probability", baseline: "probability_baseline" };
      const out = cells.map((row, k) => (k === 0 ? [...row, ...models.map((model) => heads[model])] : [...row]));
      let done = 0;
      for (const batch of splitBatches(sets, schema.limits)) {
        for (const model of models) {
          const answers = await this.predictBatch(batch, model);
          batch.forEach((set, k) => set.rows.forEach((row, i) => out[row.at].push(answers[k]?.probabilities[i] ?? "")));
        }
        done += batch.length;
        this.showMessage(`Predicted ${done} of ${sets.length} choice sets.`, false);
      }
      if (this.baselineProblem) {
        this.showMessage(`The baseline cannot predict all choice sets: ${this.baselineProblem}`, true);
      }
      download(writeCsv(out, separator), "predictions.csv");
    } catch (error) {
      this.showMessage(error.message, true);
    } finally {
      button.disabled = false;
    }
  }
}

const toSet = ({ individual, rows }) => ({ individual, alternatives: rows.map((row) => row.values) });

/** Split sets into batches that fit into one request. */
function splitBatches(sets, limits) {
  const batches = [[]];
  let pairs = 0;
  for (const set of sets) {
    const pairsOfSet = set.rows.length ** 2;
    if (batches.at(-1).length >= Math.min(limits.sets, 200) || pairs + pairsOfSet > limits.pairs) {
      batches.push([]);
      pairs = 0;
    }
    batches.at(-1).push(set);
    pairs += pairsOfSet;
  }
  return batches;
}

/** Read a table into {sets: [{id, individual, rows: [{name, values, at}]}], cells, separator}; raises on errors. */
export function readSets(text, schema) {
  const { cells, separator } = readCsv(text);
  const [heads, ...body] = cells;
  if (!body.length) throw new Error("The table needs a header line with column names and one line per alternative.");
  const place = (...names) => heads.findIndex((head) => names.some((name) => same(head, name)));
  const at = new Map(schema.columns.map((column) => [column, place(column.name, column.title)]));
  const missing = schema.columns.filter((column) => at.get(column) < 0 && column.required);
  if (missing.length) {
    const names = missing.map((column) => column.name).join(", ");
    throw new Error(`Missing columns: ${names}. The table has: ${heads.join(", ")}.`);
  }
  const idColumn = place(schema.choice_set);
  const sets = new Map();
  body.forEach((row, k) => {
    const id = idColumn < 0 ? "1" : row[idColumn];
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
  return { sets: [...sets.values()], cells, separator };
}

const same = (one, other) => one.trim().toLowerCase() === String(other).toLowerCase();

function read(column, text, line) {
  const plain = text.trim();
  if (plain === "" && column.may_be_null) return null;
  if (["number", "id"].includes(column.field)) {
    const number = parse(plain);
    if (Number.isNaN(number)) throw new Error(`Line ${line}, ${column.name}: expected a number, got "${plain}".`);
    return number;
  }
  if (column.field === "flag") return ["1", "true", "yes"].includes(plain.toLowerCase());
  if (column.field === "multi") return plain === "" ? [] : plain.split(/[;|]/).map((name) => name.trim());
  if (column.field === "vector") return plain.replace(/^\[|\]$/g, "").split(/[\s,;]+/).map(Number);
  return text;
}
