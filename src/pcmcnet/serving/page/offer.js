// The best offer: which of the alternatives on the page to show, for revenue or for the choice of one of them.
//
// It is asked for by a button, since the search takes longer than a probability; a change of the page takes the answer
// away, because it was about another set.

import { latest } from "./api.js";
import { make, titled } from "./dom.js";
import { percent, pretty } from "./format.js";

const SAME = new Set(["map", "mark", "scenarios"]); // changes that are not about the set

export class Offer {
  constructor(root, store, report) {
    this.root = root;
    this.store = store;
    this.report = report;
    this.question = latest("v1/offer");
    this.prices = store.features.filter((column) => column.role === "feature" && column.kind === "number");
    this.part("find").addEventListener("click", () => this.find());
  }

  part(name) {
    return this.root.querySelector(`[data-offer=${name}]`);
  }

  /** Fit the controls to the alternatives at hand. */
  changed(kind) {
    if (SAME.has(kind)) return;
    const { rows } = this.store.value;
    this.fill("goal", [
      ...this.prices.map((column) => [`revenue ${column.name}`, `revenue by ${titled(column)}`]),
      ...rows.map((row) => [`target ${row.id}`, `choices of ${row.name}`]),
    ]);
    this.fill("keep", [["", "nothing"], ...rows.map((row) => [String(row.id), row.name])]);
    for (const name of ["least", "most"]) this.part(name).max = rows.length;
    this.part("answer").hidden = true;
    this.report(null);
  }

  fill(name, options) {
    const select = this.part(name);
    const before = select.value;
    select.replaceChildren(...options.map(([value, text]) => make("option", { value }, text)));
    if (options.some(([value]) => value === before)) select.value = before;
  }

  /** The question as the server takes it: places count the rows. */
  asked() {
    const { rows } = this.store.value;
    const place = (id) => rows.findIndex((row) => String(row.id) === id);
    const [, kind, what] = this.part("goal").value.match(/^(\w+) (.*)$/s);
    const keep = this.part("keep").value;
    const size = (name) => (this.part(name).value === "" ? {} : { [name]: Number(this.part(name).value) });
    return {
      set: this.store.choiceSet(),
      [kind]: kind === "revenue" ? what : place(what),
      keep: keep === "" ? [] : [place(keep)],
      ...size("least"),
      ...size("most"),
    };
  }

  async find() {
    const asked = this.asked();
    const names = this.store.value.rows.map((row) => row.name);
    this.root.setAttribute("aria-busy", "true");
    try {
      const answer = await this.question(asked);
      if (answer === undefined) return;
      this.show(answer, names, "target" in asked ? percent : pretty);
      this.report(null);
    } catch (error) {
      this.part("answer").hidden = true;
      this.report(error);
    } finally {
      this.root.setAttribute("aria-busy", "false");
    }
  }

  show({ shown, probabilities, value, current_value: current, exact, gap, added, dropped }, names, words) {
    const list = (places) => places.map((place) => names[place]).join(", ");
    const heuristic = gap === null ? "heuristic" : `heuristic: at most ${percent(gap)} below the best offer`;
    const rows = [
      ["Show", shown.map((place) => `${names[place]} (${percent(probabilities[place])})`).join(", ")],
      ["Expected value", `${words(value)}, now ${words(current)}`],
      ...(added.length ? [["Add", list(added)]] : []),
      ["Drop", dropped.length ? list(dropped) : "nothing"],
      ["How sure", exact ? "proven to be the best offer" : heuristic],
    ];
    const terms = rows.flatMap(([term, text]) => [make("dt", {}, term), make("dd", {}, text)]);
    this.part("answer").replaceChildren(...terms);
    this.part("answer").hidden = false;
    this.part("said").textContent = `Best offer: ${list(shown)}. Expected value ${words(value)}.`;
  }
}
