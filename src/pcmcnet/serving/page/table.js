// The table of alternatives. A row has a name, a probability, features and buttons.

import { fullWidth, makeBars } from "./bars.js";
import { descriptions } from "./contents.js";
import { breakable, make, titled } from "./dom.js";
import { makeField } from "./fields.js";
import { percent, pretty } from "./format.js";

export class Table {
  constructor(root, store, limit) {
    this.root = root;
    this.store = store;
    this.limit = limit;
    this.columns = store.features.filter((column) => column !== store.label); // the label is in the column of names
    this.rows = new Map(); // id -> {element, fields, bars, name}
    this.open = null; // id of the row whose fields a narrow screen shows
    this.full = make("span", {}, "100%");
    this.body = make("tbody", { role: "rowgroup" });
    const longest = Math.max(0, ...(store.label?.categories ?? []).map((name) => name.length));
    if (longest) this.root.style.setProperty("--name", `${Math.min(longest, 20) + 5}ch`); // 5: padding and arrow
    this.root.append(
      make("caption", { class: "hidden" }, "Alternatives, with the probability that each is chosen"),
      this.head(),
      this.body,
    );
    this.build();
  }

  head() {
    const range = (column) => {
      if (column.field === "flag" || column.isSwitch) return "yes or no";
      if (column.field in descriptions) return descriptions[column.field](column);
      if (column.field !== "number") return column.categories ? `${column.categories.length} categories` : "category";
      return column.min == null ? "number" : `${pretty(column.min)} – ${pretty(column.max)}`;
    };
    return make(
      "thead",
      { role: "rowgroup" },
      make(
        "tr",
        { role: "row" },
        make(
          "th",
          { role: "columnheader", scope: "col", class: "name" },
          breakable(this.store.label?.title ?? "Alternative"),
        ),
        make(
          "th",
          { role: "columnheader", scope: "col", class: "probability" },
          "Probability",
          make("small", { class: "ends", "aria-hidden": "true" }, make("span", {}, "0"), this.full),
        ),
        ...this.columns.map((column) =>
          make(
            "th",
            { role: "columnheader", scope: "col", class: column.field },
            breakable(titled(column)),
            make("small", { title: "In the training data" }, range(column)),
          ),
        ),
        make(
          "th",
          { role: "columnheader", scope: "col", class: "actions" },
          make("span", { class: "hidden" }, "Actions"),
        ),
      ),
    );
  }

  // -- rows ------------------------------------------------------------------------------------------------------

  build() {
    this.rows.clear();
    const { rows } = this.store.value;
    if (!rows.some((row) => row.id === this.open)) this.open = rows[0]?.id ?? null;
    this.body.replaceChildren(...rows.map((row) => this.makeRow(row.id)));
    this.refresh();
  }

  makeRow(id) {
    const title = this.store.label === undefined ? this.makeName(id) : this.makeCell(id, this.store.label, 0);
    const toggle = make("button", { type: "button", class: "toggle", on: { click: () => this.toggle(id) } }, "Edit");
    const bars = makeBars(this.store.schema.has_baseline);
    const fields = this.columns.map((column, k) => this.makeCell(id, column, k + 1));
    const copy = make("button", { type: "button", class: "copy", on: { click: () => this.copy(id) } }, "Copy");
    const remove = make("button", { type: "button", class: "delete", on: { click: () => this.remove(id) } }, "Delete");
    const element = make(
      "tr",
      { role: "row", "data-row": id },
      make("th", { role: "rowheader", scope: "row", class: "name" }, title.element),
      make("td", { role: "cell", class: "probability" }, bars.element, toggle),
      ...fields.map((field, k) =>
        make(
          "td",
          { role: "cell", class: `value ${this.columns[k].field}` },
          make("span", { class: "narrow caption", "aria-hidden": "true" }, breakable(titled(this.columns[k]))),
          field.element,
        ),
      ),
      make("td", { role: "cell", class: "actions" }, copy, remove),
    );
    this.rows.set(id, { element, fields, bars, title, name: title.input, toggle, copy, remove });
    return element;
  }

  /** The name of an alternative on the page; the model does not use it. */
  makeName(id) {
    const row = () => this.store.row(id);
    const input = make("input", {
      ...{ type: "text", maxlength: 40, autocomplete: "off", spellcheck: "false" },
      on: {
        input: () => this.store.change("cell", () => (row().name = input.value), `name ${id}`),
        keydown: (event) => this.move(event, id, 0),
      },
    });
    const refresh = () => {
      input.value = row().name;
      input.setAttribute("aria-label", `Name of alternative ${row().name}`);
    };
    refresh();
    return { element: input, input, refresh };
  }

  makeCell(id, column, place) {
    const row = () => this.store.row(id);
    const field = makeField(column, {
      label: () => `${column.title} of ${row().name}`,
      get: () => row().values[column.name],
      set: (value) => this.store.setValue(id, column, value),
      span: () => this.store.span(column),
    });
    field.input.addEventListener("keydown", (event) => this.move(event, id, place));
    return field;
  }

  /** Show the current values. */
  refresh() {
    const { rows } = this.store.value;
    for (const { id, name } of rows) {
      const shown = this.rows.get(id);
      shown.copy.setAttribute("aria-label", `Copy ${name}`);
      shown.remove.setAttribute("aria-label", `Delete ${name}`);
      shown.toggle.setAttribute("aria-label", `Edit ${name}`);
      shown.remove.disabled = rows.length === 1;
      shown.copy.disabled = rows.length >= this.limit;
      shown.element.classList.toggle("open", id === this.open);
      shown.toggle.setAttribute("aria-expanded", String(id === this.open));
      for (const field of [shown.title, ...shown.fields])
        if (!field.element.contains(document.activeElement)) field.refresh();
    }
  }

  /** Show probabilities by row id, or null while they are unknown. */
  showProbabilities(main, baseline) {
    const values = [...(main?.values() ?? []), ...(baseline?.values() ?? [])];
    const full = fullWidth(values);
    this.full.textContent = `${100 * full}%`;
    for (const { id, mark, name } of this.store.value.rows) {
      const shown = this.rows.get(id);
      const p = main?.get(id) ?? null;
      shown.bars.show(p, baseline?.get(id) ?? null, mark, full);
      shown.element
        .querySelector("td.probability")
        .setAttribute("aria-label", p === null ? "unknown" : `${name}: ${percent(p)}`);
    }
  }

  // -- user actions ----------------------------------------------------------------------------------------------

  /** Enter moves down the column, Shift+Enter up; `place` is 0 for the name, or 1, 2, ... for a feature. */
  move(event, id, place) {
    const usesEnter = event.target.tagName === "SELECT" || event.target.type === "file";
    if (event.key !== "Enter" || usesEnter) return;
    event.preventDefault();
    const order = this.store.value.rows.map((row) => row.id);
    const next = this.rows.get(order[order.indexOf(id) + (event.shiftKey ? -1 : 1)]);
    const target = place === 0 ? next?.name : next?.fields[place - 1].input;
    target?.focus();
    target?.select?.();
  }

  toggle(id) {
    this.open = this.open === id ? null : id;
    this.refresh();
  }

  add() {
    const { rows } = this.store.value;
    this.showRow(this.store.addRow(rows.length - 1, this.store.middleValues(), "New"));
  }

  copy(id) {
    const { rows } = this.store.value;
    const at = rows.findIndex((row) => row.id === id);
    this.showRow(this.store.addRow(at, rows[at].values, `${rows[at].name} copy`));
  }

  remove(id) {
    const at = this.store.value.rows.findIndex((row) => row.id === id);
    this.store.removeRow(id);
    const { rows } = this.store.value;
    const near = this.rows.get(rows[Math.min(at, rows.length - 1)].id);
    (near.remove.disabled ? near.name : near.remove).focus();
  }

  /** Open a new row, scroll to it, and select its name. */
  showRow(id) {
    this.open = id;
    this.refresh();
    const { element, name } = this.rows.get(id);
    element.scrollIntoView({ block: "nearest" });
    name.focus({ preventScroll: true });
    name.select?.();
    element.classList.add("new");
    setTimeout(() => element.classList.remove("new"), 1200);
  }
}
