// The form for one change of the market: a value, a new alternative, or alternatives that are dropped.

import { make, titled } from "../dom.js";
import { parse } from "../format.js";
import { COMPARISONS, WAYS, extentInWords, writeChange } from "./language.js";
import { fill } from "./select.js";

const MAX_LISTED_VALUES = 200; // of a category

export class ChangeForm {
  constructor(root, settings, add) {
    this.root = root;
    this.settings = settings;
    this.add = add;
    this.part("kind").addEventListener("change", () => this.resetCondition());
    this.part("column").addEventListener("change", () => this.refresh());
    this.part("where").addEventListener("change", () => this.refresh());
    root.addEventListener("input", () => this.preview());
    root.addEventListener("submit", (event) => {
      event.preventDefault();
      this.submit();
    });
  }

  part(name) {
    return this.root.querySelector(`[data-change=${name}]`);
  }

  /** Show the columns and labels of a table. */
  show(description) {
    this.description = description;
    const { schema } = this.settings.store;
    const known = new Set(schema.columns.filter((column) => column.role !== "available").map((column) => column.name));
    const usable = (columns) => columns.filter((column) => known.has(column.name));
    const isMoney = ({ name }) => Number(this.settings.titles(name).money ?? false);
    this.features = usable(description.features).sort((one, other) => isMoney(other) - isMoney(one));
    this.individual = usable(description.segments);
    const option = ({ name }) => [name, titled(this.settings.titles(name))];
    const labels = (description.labels ?? []).map((label) => [label, label]);
    fill(this.part("column"), [...this.features, ...this.individual].map(option));
    fill(this.part("labels"), [["", "all alternatives"], ...labels]);
    fill(this.part("like"), labels);
    const where = ({ name }) => [name, `where ${this.settings.titles(name).title}`];
    const conditions = [...description.segments, ...description.features].map(where);
    fill(this.part("where"), [["", "in all choice sets"], ...conditions]);
    this.refresh();
  }

  /** Show only the fields that the kind of change and its columns need. */
  refresh() {
    const kind = this.part("kind").value;
    const hasLabels = this.description.labels !== null;
    const isIndividual = this.individual.some(({ name }) => name === this.part("column").value);
    const hide = (name, hidden) => (this.part(name).closest("label").hidden = hidden);
    this.fillColumn(kind);
    hide("name", kind !== "add" || !hasLabels);
    hide("like", kind !== "add" || !hasLabels);
    hide("labels", kind === "add" || !hasLabels || (kind === "change" && isIndividual));
    const hasNoColumn = kind === "drop" || this.part("column").value === "";
    hide("column", kind === "drop");
    const values = hasNoColumn ? null : this.valuesOf(this.part("column").value);
    hide("how", hasNoColumn || values !== null);
    hide("value", hasNoColumn || values !== null);
    hide("category", hasNoColumn || values === null);
    if (values !== null) fill(this.part("category"), values.map((value) => [value, value]));
    this.refreshCondition(hide);
    this.preview();
  }

  /** A new alternative may be like another in all columns, and only its features can differ. */
  fillColumn(kind) {
    const columns = kind === "add" ? this.features : [...this.features, ...this.individual];
    const options = columns.map(({ name }) => [name, titled(this.settings.titles(name))]);
    fill(this.part("column"), kind === "add" ? [["", "no difference"], ...options] : options);
    fill(this.part("how"), Object.entries(WAYS).map(([value, { title }]) => [value, title]));
    this.part("column-title").textContent = kind === "add" ? "except" : "Column";
    this.part("column-title").className = kind === "add" ? "" : "wide-hidden";
  }

  /** Forget the condition: it belonged to another change. */
  resetCondition() {
    this.part("where").value = "";
    this.part("where-value").value = "";
    this.refresh();
  }

  refreshCondition(hide) {
    const column = this.part("where").value;
    const values = column === "" ? null : this.valuesOf(column);
    hide("sign", column === "");
    hide("where-value", column === "" || values !== null);
    hide("where-category", column === "" || values === null);
    const signs = Object.entries(COMPARISONS).filter(([sign]) => values === null || ["==", "!="].includes(sign));
    fill(this.part("sign"), signs);
    if (values !== null) fill(this.part("where-category"), values.map((value) => [value, value]));
  }

  /** The categories of a column, or null for numbers. */
  valuesOf(name) {
    const columns = [...this.description.features, ...this.description.segments];
    return columns.find((column) => column.name === name)?.values?.slice(0, MAX_LISTED_VALUES) ?? null;
  }

  /** The change in the form; raises an error with a message for the user. */
  read() {
    const isShown = (name) => !this.part(name).closest("label").hidden;
    const text = (name) => (isShown(name) ? this.part(name).value : "");
    const number = (name, what) => {
      const value = parse(text(name));
      if (Number.isNaN(value)) throw new Error(`Enter a number as ${what}.`);
      return value;
    };
    const value = (name, category, what) => {
      if (isShown(category)) return text(category);
      return isShown(name) ? number(name, what) : null;
    };
    const kind = this.part("kind").value;
    const labels = text("labels") === "" ? [] : [text("labels")];
    const where = text("where") === "" ? null : {
      column: text("where"),
      sign: text("sign"),
      value: value("where-value", "where-category", "the limit of the condition"),
    };
    if (kind === "drop" && !labels.length && where === null) throw new Error("Choose the alternatives to drop.");
    if (isShown("name") && !text("name").trim()) throw new Error("Enter a name for the new alternative.");
    return {
      ...{ kind, labels, where, how: text("how"), value: value("value", "category", "the change") },
      ...{ column: text("column") || null, name: text("name").trim(), like: isShown("like") ? text("like") : null },
    };
  }

  written() {
    const { schema } = this.settings.store;
    return writeChange(this.read(), (name) => this.settings.titles(name), schema.label);
  }

  /** Show the change in the language of scenarios while it is being entered. */
  preview() {
    try {
      this.part("preview").textContent = this.written().text;
    } catch {
      this.part("preview").textContent = "";
    }
  }

  /** Apply the change. One that is refused stays in the form, with the reason. */
  async submit() {
    try {
      const change = this.written();
      this.part("problem").textContent = "";
      await this.add(change);
      this.resetCondition();
    } catch (error) {
      this.part("problem").textContent = error.message;
    }
  }
}

/** The list of changes. `extents` has the numbers of changed alternatives and choice sets, or null. */
export function drawChanges(list, changes, extents, remove, label) {
  const items = changes.map(({ text, words }, k) => {
    const extent = extents?.[k];
    const size = extent ? extentInWords(text, extent, label) : "";
    const on = { click: () => remove(k) };
    return make(
      "li",
      {},
      make("span", { class: "words" }, words),
      text === words ? null : make("code", {}, text),
      make("span", { class: "extent" }, size),
      make("button", { type: "button", "aria-label": `Remove the change: ${words}`, on }, "Remove"),
    );
  });
  list.replaceChildren(...items);
}
