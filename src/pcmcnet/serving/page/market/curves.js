// Curves of shares and revenue over the price of an alternative, on top of the current changes.

import { make } from "../dom.js";
import { amount, percent } from "../format.js";
import { savePicture } from "../picture.js";
import { cell, columnHead, row, rowHead } from "./cells.js";
import { isOneOf, quoteName } from "./language.js";
import { drawLines } from "./linechart.js";
import { groupingBy, numericColumns, productColumns } from "./products.js";
import { choose, fill } from "./select.js";

const POINTS = 11;
const QUICK_MS = 1500; // a curve that took less time follows the changes without a click
const HEIGHT = 300;

export class Curves {
  constructor(root, settings, simulation, report) {
    this.root = root;
    this.settings = settings;
    this.simulation = simulation;
    this.report = report;
    this.took = Infinity;
    this.drawn = null; // key of the figures that the curves show
    for (const name of ["column", "of", "range"])
      this.part(name).addEventListener("change", ({ target }) => {
        this.settings.change(({ curve }) => (curve[name] = target.value));
        this.draw();
      });
    this.part("draw").addEventListener("click", () => this.draw());
    this.part("png").addEventListener("click", () => this.savePng());
  }

  part(name) {
    return this.root.querySelector(`[data-curve=${name}]`);
  }

  show(description) {
    const { label } = this.settings.store.schema;
    const numbers = numericColumns(description, this.settings);
    const [[product, names] = [null, []]] = productColumns(description, label);
    this.product = product;
    this.took = Infinity;
    this.by = groupingBy(product, label);
    this.root.hidden = numbers.length === 0;
    fill(this.part("column"), numbers.map(({ name }) => [name, this.settings.titles(name).title]));
    fill(this.part("of"), [...names.map((name) => [name, name]), ["", "all alternatives"]]);
    this.showChoices();
    this.changed();
  }

  /** Show the choices of a link, or those before an undo. */
  showChoices() {
    for (const [name, value] of Object.entries(this.settings.value.curve)) choose(this.part(name), value);
  }

  /** The settings have changed: curves of other figures are no longer valid. */
  changed() {
    this.showChoices();
    if (this.drawn !== this.key()) this.clear();
  }

  key() {
    return JSON.stringify([this.settings.figuresKey(), ...["column", "of", "range"].map((name) => this.part(name).value)]);
  }

  /** Draw the curve again after other changes if this is quick, unless the user has just asked for it. */
  follow() {
    const isDrawing = this.root.getAttribute("aria-busy") === "true";
    const isDropped = this.settings.isDropped(this.product, this.part("of").value);
    if (this.drawn === null && this.took < QUICK_MS && !isDrawing && !isDropped) this.draw();
  }

  clear() {
    this.controller?.abort();
    this.drawn = null;
    this.root.setAttribute("aria-busy", "false");
    this.part("result").hidden = true;
    this.part("png").hidden = true;
  }

  async draw() {
    this.controller?.abort();
    const { signal } = (this.controller = new AbortController());
    const steps = this.steps();
    const key = this.key();
    const progress = (ready) => (this.part("progress").textContent = `${ready} of ${POINTS} points`);
    this.root.setAttribute("aria-busy", "true");
    const started = performance.now();
    try {
      const figures = await this.simulation.figures(this.scenarios(steps), { by: this.by, signal, progress });
      this.took = performance.now() - started;
      this.display(steps, figures);
      this.drawn = key;
      this.report(null);
    } catch (error) {
      if (error.name === "AbortError") return;
      this.clear();
      this.report(error);
    } finally {
      this.part("progress").textContent = "";
      if (!signal.aborted) this.root.setAttribute("aria-busy", "false");
    }
  }

  /** Changes of the price in per cent, with 0 in the middle. */
  steps() {
    const range = Number(this.part("range").value);
    return Array.from({ length: POINTS }, (_, k) => Math.round(range * ((2 * k) / (POINTS - 1) - 1)));
  }

  /** The scenario of each step: the current changes, and the price. */
  scenarios(steps) {
    const present = this.settings.value.changes.map(({ text }) => text);
    const of = this.part("of").value;
    const where = of === "" ? "" : ` where ${isOneOf(this.product, [of])}`;
    const price = quoteName(this.part("column").value);
    return steps.map((step) => (step === 0 ? present : [...present, `${price} *= ${(100 + step) / 100}${where}`]));
  }

  display(steps, figures) {
    const of = this.part("of").value;
    const { title } = this.settings.titles(this.part("column").value);
    const from = this.settings.value.changes.length ? "the changed market" : "today";
    this.xTitle = `Change in ${title}${of === "" ? "" : ` of ${of}`}, from ${from}`;
    const shares = this.product === null ? [] : shareLines(steps, figures, of);
    const revenue = figures[0].revenue ? revenueLines(steps, figures, of) : [];
    this.part("result").hidden = false;
    this.part("png").hidden = false;
    this.picture("shares", shares, percent, "Shares");
    this.picture("revenue", revenue, amount, "Revenue");
    const named = revenue.map((line) => ({ ...line, name: `Revenue, ${line.name}` }));
    this.table(steps, [...withFormat(shares, percent), ...withFormat(named, amount)]);
  }

  picture(name, lines, format, what) {
    const root = this.part(name);
    root.closest("figure").hidden = !lines.length;
    if (!lines.length) return;
    const room = root.closest("section").clientWidth - 24;
    const options = { formats: { x: inPercent, y: format }, title: this.xTitle, label: `${what}: ${this.xTitle}` };
    root.replaceChildren(drawLines(lines, { width: Math.min(620, room), height: HEIGHT, ...options }));
  }

  table(steps, lines) {
    const head = row(columnHead(this.xTitle), ...lines.map(({ name }) => columnHead(name)));
    const texts = (k) => lines.map(({ points, format }) => cell(format(points[k].y)));
    const rows = steps.map((step, k) => row(rowHead(inPercent(step)), ...texts(k)));
    this.part("numbers").replaceChildren(make("thead", {}, head), make("tbody", {}, ...rows));
  }

  async savePng() {
    for (const name of ["shares", "revenue"]) {
      const svg = this.part(name).querySelector("svg");
      if (svg && !this.part(name).closest("figure").hidden)
        await savePicture(this.part(name), svg.getAttribute("aria-label"), `${name}-curve`);
    }
  }
}

/** The shares of all alternatives, that of the changed one first, and then the largest. */
function shareLines(steps, figures, of) {
  const find = ({ groups }, name) => groups.find((group) => group.name === name)?.share;
  const names = [...new Set(figures.flatMap(({ groups }) => groups.map(({ name }) => name)))];
  const size = (name) => find(figures[0], name)?.before ?? 0;
  names.sort((one, other) => (other === of) - (one === of) || size(other) - size(one));
  return names.map((name) => ({ name, points: steps.map((x, k) => point(x, find(figures[k], name))) }));
}

/** The revenue of the changed alternative, and that of all. */
function revenueLines(steps, figures, of) {
  const own = ({ groups }) => groups.find(({ name }) => name === of)?.revenue;
  const all = { name: "all", points: steps.map((x, k) => point(x, figures[k].revenue)) };
  return of === "" ? [all] : [{ name: of, points: steps.map((x, k) => point(x, own(figures[k]))) }, all];
}

const point = (x, figure) => ({
  ...{ x, y: figure?.after ?? 0 },
  ...{ low: figure?.after_low ?? null, high: figure?.after_high ?? null },
});

const withFormat = (lines, format) => lines.map((line) => ({ ...line, format }));

const inPercent = (step) => `${step > 0 ? "+" : ""}${step}%`.replace("-", "−");
