// Fields to edit one value: a number with a slider, a switch, a category, or one of the kinds in contents.js.

import * as contents from "./contents.js";
import { makeCombobox } from "./combobox.js";
import { make } from "./dom.js";
import { parse, plain, pretty } from "./format.js";

const MAX_LISTED_CATEGORIES = 12; // more categories get a field with search
let messageCount = 0; // for unique ids

/**
 * Make the controls of a column. `label` returns the name for screen readers, `get` and `set` access the value, and
 * `span` returns the scale of the slider. `refresh` of the result shows the current value and keeps text being typed.
 */
export function makeField(column, { label, get, set, span }) {
  if (column.isSwitch) return switchField(label, () => get() === 1, (on) => set(on ? 1 : 0));
  if (column.field === "flag") return switchField(label, () => Boolean(get()), set);
  if (column.field === "number") return numberField(column, label, get, set, span);
  return (column.field === "category" ? categoryField : contents[`${column.field}Field`])(column, label, get, set);
}

/** Return a short message if a value is invalid, or else an empty text. */
export function findProblem(column, value) {
  if (value !== null || !column.may_be_null) {
    const problem = contents.problems[column.field]?.(column, value);
    if (problem) return problem;
  }
  if (column.field !== "number" || typeof value === "number" || (value === null && column.may_be_null)) return "";
  return value === "" || value === null ? "enter a number" : "not a number";
}

/** Whether a value is outside the training data. Labels of alternatives are never outside. */
export function isOutsideTraining(column, value) {
  if (column.role === "alternative") return false;
  if (column.field === "category") {
    const isComplete = column.categories && column.categories.length === column.distinct;
    return Boolean(isComplete) && !column.categories.includes(String(value));
  }
  if (column.field !== "number") return Boolean(contents.outsideTraining[column.field]?.(column, value));
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

  /** The arrow keys go to the next round number within the range of the training data. Other values can be typed. */
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
    const problem = findProblem(column, value);
    const isOutside = isOutsideTraining(column, value);
    const scale = span();
    if (from !== "text") show();
    slider.hidden = !scale;
    if (scale) slider.max = scale.steps;
    if (scale && from !== "slider" && typeof value === "number") slider.value = scale.place(value);
    slider.setAttribute("aria-valuetext", pretty(value));
    slider.setAttribute("aria-label", `${label()}, slider`);
    input.setAttribute("aria-label", label());
    input.setAttribute("aria-invalid", problem ? "true" : "false");
    element.classList.toggle("wrong", problem !== "");
    element.classList.toggle("beyond", isOutside);
    message.textContent = problem;
    input.title = isOutside ? `Range in the training data: ${pretty(column.min)} to ${pretty(column.max)}` : "";
  }

  refresh();
  return { element, refresh, input };
}

function categoryField(column, label, get, set) {
  const names = column.categories ?? [];
  const isShort = names.length <= MAX_LISTED_CATEGORIES && names.length === column.distinct;
  const isList = isShort && column.role !== "alternative";
  const options = names.map((name) => make("option", { value: name }, name));
  const write = (value) => {
    set(value);
    check();
  };
  const input = isList
    ? make("select", { on: { change: () => write(input.value) } }, ...options)
    : makeCombobox(names, get, write);
  const message = make("span", { class: "message new", id: `new-${(messageCount += 1)}` });
  input.setAttribute("aria-describedby", message.id);
  const element = make("div", { class: "field" }, input, make("div", { class: "under" }, message));

  function check() {
    const isOutside = isOutsideTraining(column, get() ?? "");
    element.classList.toggle("beyond", isOutside);
    message.textContent = isOutside ? "new to the model" : "";
    input.setAttribute("aria-label", label());
  }

  function refresh() {
    const value = String(get() ?? "");
    if (isList && ![...input.options].some((option) => option.value === value)) {
      input.append(make("option", { value }, value || "(none)")); // an unknown category, from a link or a table
    }
    if (document.activeElement !== input || isList) input.value = value;
    input.title = isList ? "" : value;
    check();
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
