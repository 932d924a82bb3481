// The panel of best prices and of the best offer for the user's own alternatives.
//
// The model has no outside option: everyone chooses one of the alternatives. So at least one alternative has to be a
// competitor, and otherwise the search is not offered: with the dearest alternatives alone, revenue would be largest.

import { make } from "../dom.js";
import { amount, percent, points, sentence, signedAmount } from "../format.js";
import { offerChanges, priceChanges, searchOffer, searchPrices } from "./search.js";
import { checkedNames, fill, fillChecks } from "./select.js";

const STEP = 5; // per cent of the price

export class Best {
  constructor(root, settings, simulation, report) {
    this.root = root;
    this.settings = settings;
    this.simulation = simulation;
    this.report = report;
    this.part("prices").addEventListener("click", () => this.search("prices"));
    this.part("offer").addEventListener("click", () => this.search("offer"));
    this.part("stop").addEventListener("click", () => this.controller?.abort());
    this.part("apply").addEventListener("click", () => this.apply());
    this.part("product").addEventListener("change", () => this.showProducts());
    for (const name of ["price", "goal"]) this.part(name).addEventListener("change", () => this.changed());
  }

  part(name) {
    return this.root.querySelector(`[data-best=${name}]`);
  }

  /** Alternatives are identified by their label or, in a table without labels, by a category such as the airline. */
  show(description) {
    const { label } = this.settings.store.schema;
    const categories = description.features.filter(({ values }) => values !== null && values.length > 1);
    this.products = new Map([...(description.labels ? [[label, description.labels]] : []), ...categories.map(({ name, values }) => [name, values])]);
    fill(this.part("product"), [...this.products.keys()].map((name) => [name, this.settings.titles(name).title]));
    this.part("product").closest("label").hidden = this.products.size < 2;
    const numbers = description.features.filter(({ name, values }) => values === null && this.settings.titles(name).kind === "number");
    const money = numbers.filter(({ name }) => this.settings.titles(name).money);
    fill(this.part("price"), (money.length ? money : numbers).map(({ name }) => [name, this.settings.titles(name).title]));
    this.root.hidden = this.products.size === 0;
    this.showProducts();
  }

  showProducts() {
    fillChecks(this.part("own"), this.products.get(this.part("product").value) ?? [], () => this.changed());
    this.changed();
  }

  /** The changes, the columns or the own alternatives have changed: the result is no longer valid. */
  changed() {
    this.controller?.abort();
    this.part("result").hidden = true;
    const { revenue, unitCost } = this.settings.value;
    fill(this.part("goal"), [
      ...(revenue !== null && unitCost !== null ? [["margin", "margin"]] : []),
      ...(revenue !== null ? [["revenue", "revenue"]] : []),
      ["share", "share"],
    ]);
    const own = checkedNames(this.part("own"));
    const all = this.products?.get(this.part("product").value) ?? [];
    const hasCompetitor = own.length < all.length;
    const isMoney = this.part("goal").value !== "share";
    this.part("why-not").hidden = own.length > 0 && hasCompetitor;
    this.part("no-money").hidden = revenue !== null;
    this.part("prices").disabled = !own.length || !hasCompetitor || !isMoney || this.part("price").value === "";
    this.part("offer").disabled = own.length < 2 || !hasCompetitor;
    this.report(null);
  }

  /** Return a function from lists of changes to the values of the goal for the own alternatives. */
  evaluator(own, signal) {
    const present = this.settings.value.changes.map(({ text }) => text);
    const by = this.part("product").value === this.settings.store.schema.label ? null : this.part("product").value;
    const goal = this.part("goal").value;
    let done = 0;
    const value = ({ groups }) => groups.filter(({ name }) => own.includes(name)).reduce((sum, group) => sum + group[goal].after, 0);
    const one = async (changes) => {
      try {
        const [figures] = await this.simulation.figures([[...present, ...changes.map(({ text }) => text)]], { by, intervals: false, signal });
        return value(figures);
      } catch (error) {
        if (error.status === 422 && changes.length) return NaN; // for example, choice sets would be empty
        throw error;
      }
    };
    return async (lists) => {
      const texts = lists.map((changes) => [...present, ...changes.map(({ text }) => text)]);
      let values;
      try {
        const figures = await this.simulation.figures(texts, { by, intervals: false, signal, progress: (ready) => this.progress(done + ready) });
        values = figures.map(value);
      } catch (error) {
        if (error.status !== 422) throw error;
        values = [];
        for (const changes of lists) values.push(await one(changes));
      }
      done += lists.length;
      this.progress(done);
      return values;
    };
  }

  progress(done) {
    this.part("progress").textContent = `${done} scenarios computed`;
  }

  async search(kind) {
    this.controller?.abort();
    const { signal } = (this.controller = new AbortController());
    const own = checkedNames(this.part("own"));
    const [product, price] = [this.part("product").value, this.settings.titles(this.part("price").value)];
    const evaluate = this.evaluator(own, signal);
    this.setBusy(true);
    try {
      if (kind === "prices") {
        const range = Number(this.part("range").value);
        const steps = Array.from({ length: (2 * range) / STEP + 1 }, (_, k) => STEP * k - range);
        const change = (prices) => priceChanges(prices, price, product);
        const found = await searchPrices({ own, steps, change, evaluate });
        this.found = change(found.prices);
        this.display(this.priceRows(found, range));
      } else {
        const change = (dropped) => offerChanges(dropped, product);
        const found = await searchOffer({ own, change, evaluate });
        this.found = change(found.dropped);
        this.display(this.offerRows(found, own));
      }
      this.report(null);
    } catch (error) {
      if (error.name !== "AbortError") this.report(error);
    } finally {
      if (this.controller.signal === signal) this.setBusy(false);
    }
  }

  setBusy(isBusy) {
    this.root.setAttribute("aria-busy", String(isBusy));
    this.part("stop").hidden = !isBusy;
    if (!isBusy) this.part("progress").textContent = "";
  }

  valueRow(value, current) {
    const goal = this.part("goal").value;
    if (goal === "share") return ["Share of your alternatives", `${percent(value)} (now ${percent(current)}, ${points(value - current) || "±0.0"} points)`];
    const { unit } = this.settings.titles(this.settings.value.revenue);
    const name = goal === "margin" ? "Margin" : "Revenue";
    return [`${name} of your alternatives`, `${amount(value)} ${unit} (now ${amount(current)}, ${signedAmount(value - current)})`];
  }

  priceRows({ prices, value, current, tried, atEdge }, range) {
    const text = (step) => (step === 0 ? "no change" : `${step > 0 ? "+" : "−"}${Math.abs(step)}%`);
    return [
      ["Best prices", Object.entries(prices).map(([name, step]) => `${name} ${text(step)}`).join(", ")],
      this.valueRow(value, current),
      ["Guarantee", `the best of ${tried} price lists that were compared, in steps of ${STEP}%: not proven`],
      ...(atEdge.length ? [["Caveat", `${atEdge.join(", ")}: the best price is at the edge of ±${range}%. The true optimum may be beyond it, and the model knows little there.`]] : []),
      ...this.caveats(),
    ];
  }

  offerRows({ dropped, value, current, tried, impossible, exact }, own) {
    const kept = own.filter((name) => !dropped.includes(name));
    return [
      ["Show", kept.join(", ")],
      ["Drop", dropped.join(", ") || "none"],
      this.valueRow(value, current),
      ["Guarantee", exact ? `all ${tried} offers were compared` : `the best of ${tried} offers that were compared: not proven`],
      ...(impossible ? [["Caveat", `${impossible} offers are not possible, because a choice set would be empty.`]] : []),
      ...this.caveats(),
    ];
  }

  caveats() {
    const { schema } = this.settings.store;
    const model = this.settings.value.model === "main" ? schema : schema.baseline;
    return [
      ["Caveat", "Without an outside option, everyone chooses one of the alternatives shown. Competitors do not react."],
      ...(model.caveats ?? []).map((text) => ["Caveat", sentence(text)]),
    ];
  }

  display(rows) {
    this.part("facts").replaceChildren(...rows.flatMap(([term, text]) => [make("dt", {}, term), make("dd", {}, text)]));
    this.part("result").hidden = false;
    this.part("apply").hidden = this.found.length === 0;
    this.part("announcement").textContent = rows.slice(0, 3).map(([term, text]) => `${term}: ${text}`).join(". ");
  }

  /** Add the result to the changes. */
  apply() {
    const { found } = this;
    this.settings.change(({ changes }) => changes.push(...found));
  }
}
