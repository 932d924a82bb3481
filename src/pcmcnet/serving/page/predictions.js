// Probabilities of the choice set on the page, from the model and from the baseline.
//
// Requests are sent one after the other. Changes made during a request are combined in the next request. So the latest
// result is always shown last, and a slow server is not flooded.

import { sendRequest } from "./api.js";

const PAUSE_MS = 60; // changes within this time are combined in one request

export class Predictions {
  constructor(store, ready, show) {
    this.store = store;
    this.ready = ready;
    this.show = show;
    this.main = null; // row id -> probability
    this.baseline = null; // null also if the baseline cannot predict the choice set
    this.baselineError = null;
    this.timer = 0;
    this.running = false;
    this.waiting = false;
  }

  /** Update after a short pause; `show` is called with null or with the error. */
  update() {
    setBusy(true);
    if (this.timer) return;
    this.timer = setTimeout(() => {
      this.timer = 0;
      this.run();
    }, PAUSE_MS);
  }

  async run() {
    this.waiting = this.running;
    if (this.running) return;
    if (!this.ready()) {
      setBusy(false);
      return;
    }
    this.running = true;
    const ids = this.store.value.rows.map((row) => row.id);
    const sets = [this.store.choiceSet()];
    const ask = async (model) => {
      const { sets: answers } = await sendRequest("v1/probabilities", { sets, model });
      return new Map(ids.map((id, k) => [id, answers[0].probabilities[k]]));
    };
    const baseline = this.store.schema.has_baseline ? ask("baseline").catch((error) => error) : null;
    try {
      this.main = await ask("main");
      const second = await baseline; // an error of the baseline does not hide the result of the model
      this.baselineError = second instanceof Error ? second : null;
      this.baseline = this.baselineError ? null : second;
      if (JSON.stringify(sets) === JSON.stringify([this.store.choiceSet()])) this.store.confirm();
      this.show(null);
    } catch (error) {
      await baseline;
      this.show(error);
    } finally {
      this.running = false;
      if (this.waiting) this.run();
      else setBusy(this.timer !== 0);
    }
  }
}

function setBusy(isBusy) {
  document.querySelector("main").setAttribute("aria-busy", String(isBusy));
}
