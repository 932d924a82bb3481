// Figures of scenarios from the server, which are those of `pn.scenario`.
//
// Many scenarios are sent in several requests, so that each is answered soon and a search can be stopped. Answers are
// kept, so that the server computes a scenario only once for the same table and the same columns.

import { sendRequest } from "../api.js";

const PAIRS_PER_REQUEST = 3e6; // pairs of alternatives; about a second for a network of 64x64 units
const MAX_KEPT = 300; // scenarios

export class Simulation {
  constructor(store, settings) {
    this.limits = store.schema.limits;
    this.settings = settings;
    this.kept = new Map(); // question -> figures
    this.descriptions = new Map(); // table -> its description
    if (store.schema.table) this.descriptions.set("table", store.schema.table);
  }

  /** The description of the current table: its size, labels, segments and features. */
  async describe(signal) {
    const key = this.settings.tableKey();
    if (this.descriptions.has(key)) return this.descriptions.get(key);
    const body = { ...this.settings.table(), model: this.settings.value.model, describe: true, intervals: false };
    const { table } = await sendRequest("v1/market", body, signal);
    this.descriptions.set(key, table);
    return table;
  }

  /**
   * Return the figures of scenarios, each a list of texts of changes. `by` defaults to the segments of the settings;
   * {column, merge} counts the alternatives with the names in `merge` as one group.
   * `progress` is called with the number of scenarios that are ready.
   */
  async figures(lists, { by = this.settings.grouping(), intervals = true, signal, progress } = {}) {
    const keys = lists.map((changes) => this.question(changes, by, intervals));
    const missing = [...new Set(keys.filter((key) => !this.kept.has(key)))];
    const { pairs } = await this.describe(signal);
    const size = Math.max(1, Math.min(this.limits.scenarios, Math.floor(PAIRS_PER_REQUEST / pairs)));
    const answers = new Map(keys.filter((key) => this.kept.has(key)).map((key) => [key, this.kept.get(key)]));
    for (let k = 0; k < missing.length; k += size) {
      const batch = missing.slice(k, k + size);
      const found = await this.ask(batch.map((key) => lists[keys.indexOf(key)]), by, intervals, signal);
      batch.forEach((key, j) => answers.set(key, found[j]));
      batch.forEach((key, j) => this.keep(key, found[j]));
      progress?.(answers.size);
    }
    return keys.map((key) => answers.get(key));
  }

  question(changes, by, intervals) {
    const { model, revenue, unitCost } = this.settings.value;
    const { settings } = this;
    return JSON.stringify([settings.tableKey(), model, settings.rule(), by, revenue, unitCost, intervals, changes]);
  }

  async ask(scenarios, by, intervals, signal) {
    const { model, revenue, unitCost } = this.settings.value;
    const columns = { by: [by], revenue, unit_cost: revenue === null ? null : unitCost };
    const body = { ...this.settings.table(), scenarios, ...columns, model, intervals, rule: this.settings.rule() };
    const answer = await sendRequest("v1/market", body, signal);
    return answer.scenarios.map(({ groupings, ...scenario }) => ({
      ...scenario,
      sets: answer.sets,
      intervals: answer.intervals,
      groups: groupings[0].groups,
    }));
  }

  keep(key, answer) {
    this.kept.set(key, answer);
    if (this.kept.size > MAX_KEPT) this.kept.delete(this.kept.keys().next().value);
  }
}
