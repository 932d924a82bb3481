// One value to edit: a number with its slider over the range of the set at hand, a switch, a category, or a content.

import * as contents from "./contents.js";
import { makeCombobox } from "./combobox.js";
import { make } from "./dom.js";
import { parse, plain, pretty } from "./format.js";

const FEW = 12; // categories that a plain list shows at a glance
let marks = 0; // for the ids of what is said of a category

/**
 * Make the controls of a column. `label` names them for those who cannot see the table, `get` and `set` are the value,
 * `span` the scale of the set at hand; `refresh` shows the present value, without touching what is being typed.
 */
export function makeField(column, { label, get, set, span }) {
  if (column.isSwitch) return switchField(label, () => get() === 1, (on) => set(on ? 1 : 0));
  if (column.field === "flag") return switchField(label, () => Boolean(get()), set);
  if (column.field === "number") return numberField(column, label, get, set, span);
  return (column.field === "category" ? categoryField : contents[`${column.field}Field`])(column, label, get, set);
}

/** What is wrong with a value, in few words; empty where nothing is. */
export function problem(column, value) {
  if (value !== null || !column.may_be_null) {
    const wrong = contents.problems[column.field]?.(column, value);
    if (wrong) return wrong;
  }
  if (column.field !== "number" || typeof value === "number" || (value === null && column.may_be_null)) return "";
  return value === "" || value === null ? "needs a number" : "not a number";
}

/** Whether a value lies outside what the model saw in training; a label of an alternative may be any. */
export function isBeyond(column, value) {
  if (column.role === "alternative") return false;
  if (column.field === "category") {
    const all = column.categories && column.categories.length === column.distinct;
    return Boolean(all) && !column.categories.includes(String(value));
  }
  if (column.field !== "number") return Boolean(contents.beyond[column.field]?.(column, value));
  return typeof value === "number" && (value < (column.min ?? -Infinity) || value > (column.max ?? Infinity));
}

function numberField(column, label, get, set, span) {
  const input = make("input", {
    ...{ type: "text", inputmode: "decimal", autocomplete: "off", spellcheck: "false", class: "number" },
    on: {
      input: () => write(input.value, "text"),
      change: () => show(),
      keydown: (event) => step(event),
    },
  });
  const slider = make("input", {
    ...{ type: "range", min: 0, step: 1 },
    on: { input: () => write(plain(span().value(slider.valueAsNumber)), "slider") },
  });
  const message = make("span", { class: "message" });
  const element = make("div", { class: "field" }, input, make("div", { class: "under" }, slider, message));

  function write(text, from) {
    const number = parse(text);
    set(Number.isNaN(number) ? text.trim() || (column.may_be_null ? null : "") : number);
    refresh(from);
  }

  /** Up and down go to the next round number; what lies outside the range seen in training can be typed. */
  function step(event) {
    const scale = span();
    if (!scale || !["ArrowUp", "ArrowDown"].includes(event.key) || event.altKey || event.ctrlKey) return;
    event.preventDefault();
    const from = typeof get() === "number" ? get() : scale.value(0);
    const up = event.key === "ArrowUp";
    const to = scale.next(from, up ? 1 : -1, event.shiftKey ? 10 : 1);
    const end = up ? Math.max(from, column.max ?? Infinity) : Math.min(from, column.min ?? -Infinity);
    write(plain(up ? Math.min(to, end) : Math.max(to, end)), "keys");
  }

  function show() {
    input.value = plain(get());
  }

  function refresh(from = "outside") {
    const value = get();
    const wrong = problem(column, value);
    const beyond = isBeyond(column, value);
    const scale = span();
    if (from !== "text") show();
    slider.hidden = !scale;
    if (scale) slider.max = scale.steps;
    if (scale && from !== "slider" && typeof value === "number") slider.value = scale.place(value);
    slider.setAttribute("aria-valuetext", pretty(value));
    slider.setAttribute("aria-label", `${label()}, slider`);
    input.setAttribute("aria-label", label());
    input.setAttribute("aria-invalid", wrong ? "true" : "false");
    element.classList.toggle("wrong", wrong !== "");
    element.classList.toggle("beyond", beyond);
    message.textContent = wrong;
    input.title = beyond ? `Seen in training: ${pretty(column.min)} to ${pretty(column.max)}` : "";
  }

  refresh();
  return { element, refresh, input };
}

function categoryField(column, label, get, set) {
  const names = column.categories ?? [];
  const isList = names.length <= FEW && names.length === column.distinct && column.role !== "alternative";
  const options = names.map((name) => make("option", { value: name }, name));
  const write = (value) => {
    set(value);
    judge();
  };
  const input = isList
    ? make("select", { on: { change: () => write(input.value) } }, ...options)
    : makeCombobox(names, get, write);
  const message = make("span", { class: "message new", id: `new-${(marks += 1)}` });
  input.setAttribute("aria-describedby", message.id);
  const element = make("div", { class: "field" }, input, make("div", { class: "under" }, message));

  function judge() {
    const beyond = isBeyond(column, get() ?? "");
    element.classList.toggle("beyond", beyond);
    message.textContent = beyond ? "new to the model" : "";
    input.setAttribute("aria-label", label());
  }

  function refresh() {
    const value = String(get() ?? "");
    if (isList && ![...input.options].some((option) => option.value === value)) {
      input.append(make("option", { value }, value || "(none)")); // from a link, or none: the model takes it for unseen
    }
    if (document.activeElement !== input || isList) input.value = value;
    input.title = isList ? "" : value;
    judge();
  }

  refresh();
  return { element, refresh, input };
}

/** Yes or no: a column of 0 and 1, or whether an alternative is available. */
function switchField(label, get, set) {
  const input = make("input", { type: "checkbox", role: "switch", on: { change: () => write() } });
  const word = make("span", { "aria-hidden": "true" });
  const control = make("label", { class: "switch" }, input, word);
  const element = make("div", { class: "field" }, control, make("div", { class: "under" }));

  function write() {
    set(input.checked);
    refresh();
  }

  function refresh() {
    input.checked = get();
    word.textContent = input.checked ? "yes" : "no";
    input.setAttribute("aria-label", label());
  }

  refresh();
  return { element, refresh, input };
}
