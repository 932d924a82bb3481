// The panel of best prices and of the best offer for the user's own alternatives.
//
// The model has no outside option: everyone chooses one of the alternatives. So at least one alternative has to be a
// competitor, and otherwise the search is not offered: with the dearest alternatives alone, revenue would be largest.

import { make } from "../dom.js";
import { amount, percent, points, sentence, signedAmount } from "../format.js";
import { groupingBy, numericColumns, productColumns } from "./products.js";
import { WITHOUT_OUTSIDE, reliability } from "./results.js";
import { factorToday, offerChanges, priceChanges, searchOffer, searchPrices } from "./search.js";
import { checkedNames, choose, fill, fillChecks } from "./select.js";

const STEP = 5; // per cent of the price
const COMPETITORS = "Competitors do not react.";

export class Best {
  /** `intervals` returns what the server says about intervals. */
  constructor(root, settings, simulation, { report, intervals }) {
    this.root = root;
    this.intervals = intervals;
    this.settings = settings;
    this.simulation = simulation;
    this.report = report;
    this.products = new Map(); // column -> names of alternatives
    this.part("prices").addEventListener("click", () => this.search((found) => this.bestPrices(found)));
    this.part("offer").addEventListener("click", () => this.search((found) => this.bestOffer(found)));
    this.part("stop").addEventListener("click", () => this.controller?.abort());
    this.part("apply").addEventListener("click", () => this.apply());
    this.part("product").addEventListener("change", ({ target }) => {
      this.settings.change((value) => Object.assign(value, { own: [], best: { ...value.best, product: target.value } }));
    });
    for (const name of ["price", "goal", "range"])
      this.part(name).addEventListener("change", ({ target }) =>
        this.settings.change(({ best }) => (best[name] = target.value)),
      );
  }

  part(name) {
    return this.root.querySelector(`[data-best=${name}]`);
  }

  show(description) {
    const titled = (name) => [name, this.settings.titles(name).title];
    this.products = productColumns(description, this.settings.store.schema.label);
    fill(this.part("product"), [...this.products.keys()].map(titled));
    this.part("product").closest("label").hidden = this.products.size < 2;
    const numbers = numericColumns(description, this.settings);
    const money = numbers.filter(({ name }) => this.settings.titles(name).money);
    fill(this.part("price"), (money.length ? money : numbers).map(({ name }) => titled(name)));
    this.root.hidden = this.products.size === 0;
    this.changed();
  }

  /** Show a box for each alternative of the chosen column. */
  showProducts() {
    choose(this.part("product"), this.settings.value.best.product);
    const names = this.allNames();
    const boxes = [...this.part("own").querySelectorAll("input")].map(({ value }) => value);
    if (JSON.stringify(boxes) !== JSON.stringify(names)) fillChecks(this.part("own"), names, () => this.tick());
  }

  /** The column that names the user's own alternatives. */
  product() {
    return this.part("product").value;
  }

  /** Keep the alternatives that are ticked, and those that were ticked before the changes dropped them. */
  tick() {
    const shown = this.allNames();
    const dropped = this.settings.value.own.filter((name) => !shown.includes(name));
    this.settings.change((value) => (value.own = [...dropped, ...checkedNames(this.part("own"))]));
  }

  allNames() {
    return this.products.get(this.part("product").value) ?? [];
  }

  /** The settings have changed. A result for other changes, columns or own alternatives is no longer valid. */
  changed() {
    const { revenue, unitCost, own, best } = this.settings.value;
    this.showProducts();
    for (const box of this.part("own").querySelectorAll("input")) box.checked = own.includes(box.value);
    const ofMoney = revenue === null ? [] : [...(unitCost === null ? [] : ["margin"]), "revenue"];
    fill(this.part("goal"), [...ofMoney, "share"].map((goal) => [goal, goal]));
    for (const name of ["goal", "price", "range"]) choose(this.part(name), best[name]);
    this.part("no-money").hidden = revenue !== null;
    this.enable();
    if (this.key() !== this.searched) this.clear();
  }

  clear() {
    this.controller?.abort();
    this.searched = null;
    this.part("result").hidden = true;
    this.report(null);
  }

  /** A key that changes with everything that a search depends on. */
  key() {
    const options = ["product", "goal", "price", "range"].map((name) => this.part(name).value);
    return JSON.stringify([this.settings.figuresKey(), this.settings.value.own, options]);
  }

  /** Offer the searches that are meaningful: there has to be an own alternative and one of a competitor. */
  enable() {
    const own = checkedNames(this.part("own"));
    const hasBoth = own.length > 0 && own.length < this.allNames().length;
    const isMoney = this.part("goal").value !== "share" && this.part("price").value !== "";
    this.part("why-not").hidden = hasBoth;
    this.part("prices").disabled = !hasBoth || !isMoney;
    this.part("offer").disabled = !hasBoth || own.length < 2;
  }

  // -- searches --------------------------------------------------------------------------------------------------

  async search(find) {
    this.controller?.abort();
    const { signal } = (this.controller = new AbortController());
    const own = checkedNames(this.part("own"));
    this.searched = this.key();
    this.setBusy(true);
    try {
      const interval = (changes) => this.interval(own, changes, signal);
      this.display(await find({ own, evaluate: this.evaluator(own, signal), interval }));
      this.report(null);
    } catch (error) {
      if (error.name !== "AbortError") this.report(error);
    } finally {
      if (this.controller.signal === signal) this.setBusy(false);
    }
  }

  async bestPrices({ own, evaluate, interval }) {
    const range = Number(this.part("range").value);
    const steps = Array.from({ length: (2 * range) / STEP + 1 }, (_, k) => STEP * k - range);
    const price = this.settings.titles(this.part("price").value);
    const change = (prices) => priceChanges(prices, price, this.part("product").value);
    const found = await searchPrices({ own, steps, change, evaluate });
    this.found = change(found.prices);
    return this.priceRows(found, range, await interval(this.found));
  }

  async bestOffer({ own, evaluate, interval }) {
    const change = (dropped) => offerChanges(dropped, this.part("product").value);
    const found = await searchOffer({ own, change, evaluate });
    this.found = change(found.dropped);
    return this.offerRows(found, own, await interval(this.found));
  }

  /** Return a function from lists of changes to the values of the goal, NaN for changes that are not possible. */
  evaluator(own, signal) {
    const present = this.settings.value.changes.map(({ text }) => text);
    const by = groupingBy(this.part("product").value, this.settings.store.schema.label);
    const goal = this.part("goal").value;
    const ofOwn = ({ groups }) => groups.filter(({ name }) => own.includes(name));
    const value = (figures) => ofOwn(figures).reduce((sum, group) => sum + group[goal].after, 0);
    let done = 0;
    const compute = async (lists) => {
      const progress = (ready) => this.showProgress(done + ready);
      const options = { by, intervals: false, signal, progress };
      return (await this.simulation.figures(lists, options)).map(value);
    };
    const computeEach = async (lists) => {
      const values = [];
      for (const list of lists) values.push(...(await compute([list]).catch(notPossible)));
      return values;
    };
    return async (changes) => {
      const lists = changes.map((list) => [...present, ...list.map(({ text }) => text)]);
      const values = await compute(lists).catch((error) => {
        if (error.status !== 422) throw error;
        return computeEach(lists); // one of them is not possible
      });
      done += lists.length;
      return values;
    };
  }

  /** The interval of the goal after some changes, {after_low, after_high}; both are null without intervals. */
  async interval(own, changes, signal) {
    if (this.intervals().startsWith("no intervals")) return { after_low: null, after_high: null };
    const present = this.settings.value.changes.map(({ text }) => text);
    const by = { column: groupingBy(this.part("product").value, this.settings.store.schema.label), merge: own };
    const [figures] = await this.simulation.figures([[...present, ...changes.map(({ text }) => text)]], { by, signal });
    return figures.groups[0][this.part("goal").value];
  }

  showProgress(done) {
    this.part("progress").textContent = `${done} scenarios computed`;
  }

  setBusy(isBusy) {
    this.root.setAttribute("aria-busy", String(isBusy));
    this.part("stop").hidden = !isBusy;
    if (!isBusy) this.part("progress").textContent = "";
  }

  // -- results ---------------------------------------------------------------------------------------------------

  priceRows({ prices, value, current, tried, atEdge }, range, figure) {
    const where = `${atEdge.join(", ")}: the best price is at the edge of ±${range}%.`;
    const edge = `${where} A price beyond it may be better, but there the model extrapolates.`;
    return [
      ["Best prices", Object.entries(prices).map(([name, step]) => `${name} ${inPercent(step)}`).join(", ")],
      ...this.againstToday(prices),
      ...this.valueRows(value, current, figure),
      ["How sure", `${tried} price lists were tried, in steps of ${STEP}%; a better one may exist.`],
      ...(atEdge.length ? [["Caveat", edge]] : []),
      ...this.caveats(),
    ];
  }

  offerRows({ dropped, value, current, tried, impossible, exact }, own, figure) {
    const kept = own.filter((name) => !dropped.includes(name));
    const some = `${tried} offers were tried; a better one may exist.`;
    const empty = `${impossible} offers are not possible, because a choice set would be empty.`;
    return [
      ["Show", kept.join(", ")],
      ["Drop", dropped.join(", ") || "none"],
      ...this.valueRows(value, current, figure),
      ["How sure", exact ? `All ${tried} offers were compared.` : some],
      ...(impossible ? [["Caveat", empty]] : []),
      ...this.caveats(),
    ];
  }

  /** The best prices against those of today, if there are changes already: searches do not start from today then. */
  againstToday(prices) {
    const { changes } = this.settings.value;
    if (!changes.length) return [];
    const [price, column] = [this.part("price").value, this.part("product").value];
    const total = ([name, step]) => {
      const factor = factorToday(changes, price, column, name);
      return factor === null ? `${name} differs by choice set` : `${name} ${inPercent(factor * (100 + step) - 100)}`;
    };
    return [["Against today's prices", Object.entries(prices).map(total).join(", ")]];
  }

  /** The value of the goal and, if the model has intervals, its interval at the prices or the offer that were found. */
  valueRows(value, current, { after_low: low, after_high: high }) {
    const goal = this.part("goal").value;
    const title = `${goal.charAt(0).toUpperCase()}${goal.slice(1)} of your alternatives`;
    const isShare = goal === "share";
    const unit = isShare ? "" : ` ${this.settings.titles(this.settings.value.revenue).unit}`;
    const format = isShare ? percent : amount;
    const change = isShare ? `${points(value - current) || "±0.0"} % points` : signedAmount(value - current);
    const rows = [[title, `${format(value)}${unit} (now ${format(current)}${unit}, ${change})`]];
    const level = this.intervals().match(/^\d+%/)?.[0] ?? "";
    if (low !== null && high !== null) rows.push([`${level} interval`, `${format(low)} to ${format(high)}${unit}`]);
    return rows;
  }

  caveats() {
    const { schema } = this.settings.store;
    const model = this.settings.value.model === "main" ? schema : schema.baseline;
    const [outside] = WITHOUT_OUTSIDE.split(" So ");
    const text = this.intervals();
    const sure = text.startsWith("no intervals") ? [reliability(text)] : []; // other texts are about the market's table
    return [`${outside} ${COMPETITORS}`, ...sure, ...(model.caveats ?? []).map(sentence)].map((text) => ["Caveat", text]);
  }

  display(rows) {
    this.part("facts").replaceChildren(...rows.flatMap(([term, text]) => [make("dt", {}, term), make("dd", {}, text)]));
    this.part("result").hidden = false;
    this.part("apply").hidden = this.found.length === 0;
    const first = rows.slice(0, 3).map(([term, text]) => `${term}: ${text}`);
    this.part("announcement").textContent = first.join(". ");
  }

  /** Add the result to the changes. */
  apply() {
    const { found } = this;
    this.settings.change(({ changes }) => changes.push(...found));
  }
}

/** A change in per cent with at most one decimal. */
function inPercent(change) {
  const size = Number(Math.abs(change).toFixed(1));
  return size === 0 ? "no change" : `${change > 0 ? "+" : "−"}${size}%`;
}

/** An offer that the server refuses has no value; other errors are raised. */
function notPossible(error) {
  if (error.status === 422) return [NaN];
  throw error;
}
