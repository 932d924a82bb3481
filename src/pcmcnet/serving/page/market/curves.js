// Curves of shares and revenue over the price of an alternative, on top of the current changes.

import { make } from "../dom.js";
import { amount, percent } from "../format.js";
import { savePicture } from "../picture.js";
import { isOneOf, quoteName } from "./language.js";
import { drawLines } from "./linechart.js";
import { fill } from "./select.js";

const POINTS = 11;
const QUICK_MS = 1500; // a curve that took less time follows the changes without a click

export class Curves {
  constructor(root, settings, simulation, report) {
    this.root = root;
    this.settings = settings;
    this.simulation = simulation;
    this.report = report;
    this.took = Infinity;
    for (const name of ["column", "of", "range"]) this.part(name).addEventListener("change", () => this.draw());
    this.part("draw").addEventListener("click", () => this.draw());
    this.part("png").addEventListener("click", () => this.savePng());
  }

  part(name) {
    return this.root.querySelector(`[data-curve=${name}]`);
  }

  show(description) {
    const numbers = description.features.filter(({ name, values }) => values === null && this.settings.titles(name).kind === "number");
    const money = ({ name }) => (this.settings.titles(name).money ? 0 : 1);
    numbers.sort((one, other) => money(one) - money(other));
    this.root.hidden = numbers.length === 0;
    fill(this.part("column"), numbers.map(({ name }) => [name, this.settings.titles(name).title]));
    const labels = (description.labels ?? []).map((label) => [label, label]);
    fill(this.part("of"), [...labels, ["", "all alternatives"]]);
    this.part("of").closest("label").hidden = !labels.length;
    this.hasLabels = labels.length > 0;
    this.clear();
  }

  /** The changes have changed: draw the curve again if this is quick, or else hide it. */
  changed() {
    if (this.took < QUICK_MS) this.draw();
    else this.clear();
  }

  clear() {
    this.controller?.abort();
    this.part("result").hidden = true;
    this.part("png").hidden = true;
  }

  async draw() {
    this.controller?.abort();
    const { signal } = (this.controller = new AbortController());
    const [column, of, range] = ["column", "of", "range"].map((name) => this.part(name).value);
    const steps = Array.from({ length: POINTS }, (_, k) => Math.round(range * ((2 * k) / (POINTS - 1) - 1)));
    const where = of === "" ? "" : ` where ${isOneOf(this.settings.store.schema.label, [of])}`;
    const present = this.settings.value.changes.map(({ text }) => text);
    const lists = steps.map((step) => (step === 0 ? present : [...present, `${quoteName(column)} *= ${(100 + step) / 100}${where}`]));
    const progress = (ready) => (this.part("progress").textContent = `${ready} of ${POINTS} points`);
    this.root.setAttribute("aria-busy", "true");
    const started = performance.now();
    try {
      const figures = await this.simulation.figures(lists, { by: null, signal, progress });
      this.took = performance.now() - started;
      this.display(steps, figures, this.settings.titles(column).title, of);
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

  display(steps, figures, title, of) {
    const xTitle = `Change in ${title}${of === "" ? "" : ` of ${of}`}`;
    const shares = this.shareLines(steps, figures, of);
    this.part("result").hidden = false;
    this.part("png").hidden = false;
    this.picture("shares", shares, xTitle, percent, `Shares over the ${xTitle.toLowerCase()}`);
    const revenue = figures[0].revenue ? this.revenueLines(steps, figures, of) : [];
    this.part("revenue-figure").hidden = !revenue.length;
    if (revenue.length) this.picture("revenue", revenue, xTitle, amount, `Revenue over the ${xTitle.toLowerCase()}`);
    this.table(steps, [...shares.map((line) => ({ ...line, format: percent })), ...revenue.map((line) => ({ ...line, format: amount, name: `Revenue, ${line.name}` }))], xTitle);
  }

  /** The shares of all labels, the chosen one first. Positions have no meaning of their own, so only labels are lines. */
  shareLines(steps, figures, of) {
    if (!this.hasLabels) return [];
    const names = [...new Set(figures.flatMap(({ groups }) => groups.map(({ name }) => name)))];
    const size = (name) => figures[0].groups.find((group) => group.name === name)?.share.before ?? 0;
    names.sort((one, other) => (other === of) - (one === of) || size(other) - size(one));
    return names.map((name) => ({ name, points: steps.map((x, k) => point(x, figures[k].groups.find((group) => group.name === name)?.share)) }));
  }

  revenueLines(steps, figures, of) {
    const total = { name: "all", points: steps.map((x, k) => point(x, figures[k].revenue)) };
    if (of === "") return [total];
    const own = steps.map((x, k) => point(x, figures[k].groups.find(({ name }) => name === of)?.revenue));
    return [{ name: of, points: own }, total];
  }

  picture(name, lines, xTitle, format, label) {
    const root = this.part(name);
    root.closest("figure").hidden = !lines.length;
    if (!lines.length) return;
    const width = Math.min(620, root.closest("section").clientWidth - 24 || 560);
    const signed = (tick) => `${tick > 0 ? "+" : ""}${tick}%`.replace("-", "−");
    root.replaceChildren(drawLines(lines, { width, height: 300, formats: { x: signed, y: format }, titles: { x: xTitle }, label }));
  }

  table(steps, lines, xTitle) {
    const head = make("tr", {}, make("th", { scope: "col" }, xTitle), ...lines.map(({ name }) => make("th", { scope: "col" }, name)));
    const rows = steps.map((step, k) =>
      make("tr", {}, make("th", { scope: "row" }, `${step > 0 ? "+" : ""}${step}%`), ...lines.map(({ points, format }) => make("td", {}, format(points[k].y)))),
    );
    this.part("numbers").replaceChildren(make("thead", {}, head), make("tbody", {}, ...rows));
  }

  async savePng() {
    for (const name of ["shares", "revenue"])
      if (this.part(name).querySelector("svg") && !this.part(name).closest("figure").hidden)
        await savePicture(this.part(name), this.part(name).querySelector("svg").getAttribute("aria-label"), `${name}-curve`);
  }
}

const point = (x, figure) => ({ x, y: figure?.after ?? 0, low: figure?.after_low ?? null, high: figure?.after_high ?? null });
