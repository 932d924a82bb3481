// Scenarios side by side: the market today, the current changes and the saved scenarios, with differences from today.

import { make } from "../dom.js";
import { directionOf, quantities } from "./results.js";

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
    const { figures } = all[0];
    const columns = quantities(figures, this.settings);
    const chosen = columns.find(({ key }) => key === this.measure.value) ?? columns[0];
    this.measure.replaceChildren(...columns.map(({ key, title }) => make("option", { value: key, selected: key === chosen.key }, title)));
    this.cells = this.read(all, chosen);
    this.table.replaceChildren(
      make("caption", { class: "hidden" }, `${chosen.title} in each scenario`),
      this.head(all),
      make("tbody", {}, ...this.cells.slice(1).map((row) => drawRow(row, chosen))),
    );
  }

  /** Rows of [name, today, {after, change} of each scenario]; the total of amounts comes last. */
  read(all, { key }) {
    const { figures } = all[0];
    const of = (one, name) => (one.figures ? (lookUp(one.figures, name) ?? null) : null);
    const names = [...new Set(all.flatMap((one) => (one.figures?.groups ?? []).map(({ group }) => group)))];
    const rows = names.map((name) => {
      const today = lookUp(figures, name)?.[key].before ?? 0;
      return [titleOf(all, name), today, ...all.map((one) => of(one, name)?.[key] ?? null)];
    });
    const total = key === "share" || !figures[key] ? [] : [["Total", figures[key].before, ...all.map((one) => one.figures?.[key] ?? null)]];
    return [["alternative", "today", ...all.map(({ name }) => name)], ...rows, ...total];
  }

  head(all) {
    const saved = all.slice(1).map((scenario, k) => this.savedHead(scenario, k));
    return make(
      "thead",
      {},
      make("tr", {}, make("th", { scope: "col" }, "Alternative"), make("th", { scope: "col" }, "Today"), make("th", { scope: "col" }, "Current changes"), ...saved),
    );
  }

  savedHead({ name, changes, error }, k) {
    const { scenarios } = this.settings.value;
    const field = make("input", {
      ...{ type: "text", maxlength: 40, value: name, autocomplete: "off", "aria-label": `Name of scenario ${k + 1}` },
      on: { change: () => this.settings.change(() => (scenarios[k].name = field.value)) },
    });
    const button = (text, click) => make("button", { type: "button", "aria-label": `${text} ${name}`, on: { click } }, text);
    const open = () => this.settings.change((value) => (value.changes = [...changes]));
    const remove = () => this.settings.change(() => scenarios.splice(k, 1));
    return make(
      "th",
      { scope: "col" },
      field,
      make("ul", { class: "of-scenario" }, ...changes.map(({ words }) => make("li", {}, words))),
      error ? make("p", { class: "error" }, error) : null,
      make("div", {}, button("Open", open), button("Delete", remove)),
    );
  }

  /** The table as cells for a CSV file. */
  csv() {
    const [[first, today, ...names], ...rows] = this.cells;
    const heads = names.flatMap((name) => [name, `${name}, change`]);
    return [[first, today, ...heads], ...rows.map(([name, value, ...figures]) => [name, value, ...figures.flatMap((one) => [one?.after ?? "", one?.change ?? ""])])];
  }
}

function drawRow([name, today, ...figures], { format, change }) {
  const cell = (figure) => {
    if (figure === null) return make("td", { class: "none" }, "–");
    const difference = change(figure.change);
    return make("td", {}, format(figure.after), make("small", { class: directionOf(difference) }, difference));
  };
  return make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, format(today)), ...figures.map(cell));
}

const lookUp = (figures, name) => figures.groups.find(({ group }) => group === name);

function titleOf(all, name) {
  for (const { figures } of all) {
    const found = figures && lookUp(figures, name);
    if (found) return found.segment === null ? found.name : `${found.segment}: ${found.name}`;
  }
  return name;
}

