// The best offer: which alternatives to show for the largest revenue, or for the largest share of one of them.
//
// A button starts the search, because it takes longer than a prediction. A change of the choice set hides the result.
//
// The page knows no outside option. If nothing has to stay on offer, the model lets everyone choose what is left, so the
// best offer would be only the dearest alternative. So the search needs an alternative that is always shown. Revenue is
// offered for columns in money. If no column is declared as money, the user chooses one.

import { latestRequest } from "./api.js";
import { make, titled } from "./dom.js";
import { percent, pretty, sentence } from "./format.js";

const UNRELATED_CHANGES = new Set(["map", "mark", "scenarios"]); // they do not change the choice set

export class Offer {
  constructor(root, store, report) {
    this.root = root;
    this.store = store;
    this.report = report;
    this.requestOffer = latestRequest("v1/offer");
    this.numbers = store.features.filter((column) => column.role === "feature" && column.kind === "number");
    this.money = this.numbers.filter((column) => column.money);
    this.part("money-line").hidden = this.money.length > 0 || this.numbers.length === 0;
    this.fill("money", [["", "(none)"], ...this.numbers.map((column) => [column.name, titled(column)])]);
    this.part("money").addEventListener("change", (event) => this.declare(event.target.value));
    this.part("keep").addEventListener("change", () => this.requireKept());
    this.part("find").addEventListener("click", () => this.find());
  }

  part(name) {
    return this.root.querySelector(`[data-offer=${name}]`);
  }

  /** Use a column as revenue that the table does not declare as money. */
  declare(name) {
    this.money = this.numbers.filter((column) => column.name === name);
    this.changed("cell");
    if (this.money.length) this.part("goal").value = `revenue ${name}`;
  }

  /** Without an alternative that is always shown, there is no meaningful best offer. */
  requireKept() {
    const isKept = this.part("keep").value !== "";
    this.part("find").disabled = !isKept;
    this.part("why-not").hidden = isKept;
  }

  /** Update the controls to the alternatives on the page, and hide the result. */
  changed(kind) {
    if (UNRELATED_CHANGES.has(kind)) return;
    const { rows } = this.store.value;
    this.fill("goal", [
      ...this.money.map((column) => [`revenue ${column.name}`, `revenue from ${titled(column)}`]),
      ...rows.map((row) => [`target ${row.id}`, `share of ${row.name}`]),
    ]);
    this.fill("keep", [["", "(choose)"], ...rows.map((row) => [String(row.id), row.name])]);
    for (const name of ["least", "most"]) this.part(name).max = rows.length;
    this.part("result").hidden = true;
    this.requireKept();
    this.report(null);
  }

  fill(name, options) {
    const select = this.part(name);
    const previous = select.value;
    select.replaceChildren(...options.map(([value, text]) => make("option", { value }, text)));
    if (options.some(([value]) => value === previous)) select.value = previous;
  }

  /** The body of the request. Alternatives are given by their row number. */
  requestBody() {
    const { rows } = this.store.value;
    const place = (id) => rows.findIndex((row) => String(row.id) === id);
    const [, kind, goal] = this.part("goal").value.match(/^(\w+) (.*)$/s);
    const keep = this.part("keep").value;
    const size = (name) => (this.part(name).value === "" ? {} : { [name]: Number(this.part(name).value) });
    return {
      set: this.store.choiceSet(),
      [kind]: kind === "revenue" ? goal : place(goal),
      keep: [place(keep)],
      ...size("least"),
      ...size("most"),
    };
  }

  async find() {
    const body = this.requestBody();
    const names = this.store.value.rows.map((row) => row.name);
    this.root.setAttribute("aria-busy", "true");
    try {
      const offer = await this.requestOffer(body);
      if (offer === undefined) return;
      this.show(offer, names, "target" in body ? percent : pretty);
      this.report(null);
    } catch (error) {
      this.part("result").hidden = true;
      this.report(error);
    } finally {
      this.root.setAttribute("aria-busy", "false");
    }
  }

  show({ shown, probabilities, value, current_value: current, exact, gap, added, dropped, notes }, names, format) {
    const list = (places) => places.map((place) => names[place]).join(", ");
    const bound = gap === null ? "none: heuristic search" : `at most ${percent(gap)} below the best possible offer`;
    const rows = [
      ["Show", shown.map((place) => `${names[place]} (${percent(probabilities[place])})`).join(", ")],
      ["Expected value", `${format(value)} (currently ${format(current)})`],
      ...(added.length ? [["Add", list(added)]] : []),
      ["Drop", dropped.length ? list(dropped) : "none"],
      ["Guarantee", exact ? "proven to be the best offer" : bound],
      ...notes.map((note) => ["Note", sentence(note)]),
    ];
    const terms = rows.flatMap(([term, text]) => [make("dt", {}, term), make("dd", {}, text)]);
    this.part("result").replaceChildren(...terms);
    this.part("result").hidden = false;
    this.part("announcement").textContent = `Best offer: ${list(shown)}. Expected value: ${format(value)}.`;
  }
}
