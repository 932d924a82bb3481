// The probabilities of the choice set on the page, by the model and by the baseline.
//
// Questions go one after the other, never two at once: while one is under way, further changes wait and are asked about
// together. So the last answer is always the last shown, and a slow server is not flooded.

import { ask } from "./api.js";

const PAUSE = 60; // milliseconds, within which quick changes are one question

export class Answers {
  constructor(store, ready, show) {
    this.store = store;
    this.ready = ready;
    this.show = show;
    this.main = null; // row id -> probability
    this.baseline = null;
    this.timer = 0;
    this.running = false;
    this.waiting = false;
  }

  /** Ask soon; `show` is called with null, or with what went wrong. */
  ask() {
    busy(true);
    if (this.timer) return;
    this.timer = setTimeout(() => {
      this.timer = 0;
      this.run();
    }, PAUSE);
  }

  async run() {
    this.waiting = this.running;
    if (this.running) return;
    if (!this.ready()) {
      busy(false);
      return;
    }
    this.running = true;
    const ids = this.store.value.rows.map((row) => row.id);
    const sets = [this.store.choiceSet()];
    const models = this.store.schema.has_baseline ? ["main", "baseline"] : ["main"];
    try {
      const found = await Promise.all(models.map((model) => ask("v1/probabilities", { sets, model })));
      const [main, baseline] = found.map(
        ({ sets: [{ probabilities }] }) => new Map(ids.map((id, k) => [id, probabilities[k]])),
      );
      this.main = main;
      this.baseline = baseline ?? null;
      this.show(null);
    } catch (error) {
      this.show(error);
    } finally {
      this.running = false;
      if (this.waiting) this.run();
      else busy(this.timer !== 0);
    }
  }
}

function busy(is) {
  document.querySelector("main").setAttribute("aria-busy", String(is));
}
