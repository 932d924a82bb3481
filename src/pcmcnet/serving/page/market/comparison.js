// Scenarios side by side: the market today, the current changes and the saved scenarios, with differences from today.

import { make } from "../dom.js";
import { cell, columnHead, row, rowHead } from "./cells.js";
import { directionOf, quantities, readable } from "./results.js";
import { choose, fill } from "./select.js";

export class Comparison {
  constructor(root, settings) {
    this.root = root;
    this.settings = settings;
    this.table = root.querySelector("table");
    this.measure = root.querySelector("[data-market=measure]");
  }

  /** Show the scenarios; `all` has [{name, changes, figures, error}], the current changes first. */
  draw(all) {
    this.root.hidden = this.settings.value.scenarios.length === 0;
    if (this.root.hidden) return;
    const columns = quantities(all[0].figures, this.settings);
    fill(this.measure, columns.map(({ key, title }) => [key, title]));
    choose(this.measure, this.settings.value.measure);
    const quantity = columns.find(({ key }) => key === this.measure.value);
    this.cells = this.read(all, quantity);
    this.table.replaceChildren(
      make("caption", { class: "hidden" }, `${quantity.title} in each scenario`),
      make("thead", {}, this.head(all)),
      make("tbody", {}, ...this.cells.slice(1).map((cells) => drawRow(cells, quantity))),
    );
  }

  /** Rows of [name, today, {after, change} of each scenario]; the total of amounts comes last. */
  read(all, { key }) {
    const today = all[0].figures;
    const names = [...new Set(all.flatMap(({ figures }) => figures?.groups.map(({ group }) => group) ?? []))];
    const rows = names.map((name) => {
      const groups = all.map(({ figures }) => figures?.groups.find(({ group }) => group === name));
      return [name, groups[0]?.[key].before ?? 0, ...groups.map((group) => group?.[key] ?? null)];
    });
    const total = ["Total", today[key]?.before, ...all.map(({ figures }) => figures?.[key] ?? null)];
    return [["alternative", "today", ...all.map(({ name }) => name)], ...rows, ...(today[key] ? [total] : [])];
  }

  head(all) {
    const saved = all.slice(1).map((scenario, k) => this.savedHead(scenario, k));
    return row(columnHead("Alternative"), columnHead("Today"), columnHead("Current changes"), ...saved);
  }

  savedHead({ name, changes, error }, k) {
    const { scenarios } = this.settings.value;
    const field = make("input", {
      ...{ type: "text", maxlength: 40, value: name, autocomplete: "off", "aria-label": `Name of scenario ${k + 1}` },
      on: { change: () => this.settings.change(() => (scenarios[k].name = field.value)) },
    });
    const open = () => this.settings.change((value) => (value.changes = [...changes]));
    const remove = () => this.settings.change(() => scenarios.splice(k, 1));
    return make(
      "th",
      { scope: "col" },
      field,
      make("ul", { class: "of-scenario" }, ...changes.map(({ words }) => make("li", {}, words))),
      error ? make("p", { class: "error" }, error) : null,
      make("div", {}, button("Open", name, open), button("Delete", name, remove)),
    );
  }

  /** The table as cells for a CSV file. */
  csv() {
    const [[first, today, ...names], ...rows] = this.cells;
    const heads = names.flatMap((name) => [name, `${name}, change`]);
    const numbers = (figures) => figures.flatMap((figure) => [figure?.after ?? "", figure?.change ?? ""]);
    return [[first, today, ...heads], ...rows.map(([name, value, ...figures]) => [name, value, ...numbers(figures)])];
  }
}

function button(text, name, click) {
  return make("button", { type: "button", "aria-label": `${text} ${name}`, on: { click } }, text);
}

function drawRow([name, today, ...figures], { format, change }) {
  const difference = (text) => make("small", { class: directionOf(text) }, text);
  const ofScenario = (figure) =>
    figure === null ? cell("–") : cell(format(figure.after), difference(change(figure.change)));
  return row(rowHead(readable(name)), cell(format(today)), ...figures.map(ofScenario));
}
