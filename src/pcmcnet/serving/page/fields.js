// One value to edit: a number with its slider over the range seen in training, a category, or a content.

import * as contents from "./contents.js";
import { make } from "./dom.js";
import { parse, plain, pretty } from "./format.js";
import { makeScale } from "./scale.js";

let lists = 0; // for the ids of lists of suggestions

/**
 * Make the controls of a column. `label` names them for those who cannot see the table, `get` and `set` are the value;
 * `refresh` shows the present one, without touching what is being typed.
 */
export function makeField(column, { label, get, set }) {
  const kind = { number: numberField, category: categoryField, flag: flagField }[column.field];
  return (kind ?? contents[`${column.field}Field`])(column, label, get, set);
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

/** Whether a value lies outside what the model saw in training. */
export function isBeyond(column, value) {
  if (column.field === "category") {
    const all = column.categories && column.categories.length === column.distinct;
    return Boolean(all) && !column.categories.includes(String(value));
  }
  if (column.field !== "number") return Boolean(contents.beyond[column.field]?.(column, value));
  return typeof value === "number" && (value < (column.min ?? -Infinity) || value > (column.max ?? Infinity));
}

function numberField(column, label, get, set) {
  const scale = makeScale(column);
  const input = make("input", {
    ...{ type: "text", inputmode: "decimal", autocomplete: "off", spellcheck: "false", class: "number" },
    on: {
      input: () => write(input.value, "text"),
      change: () => show(),
      keydown: (event) => step(event),
    },
  });
  const slider =
    scale &&
    make("input", {
      ...{ type: "range", min: 0, max: scale.steps, step: 1 },
      on: { input: () => write(plain(scale.value(slider.valueAsNumber / scale.steps)), "slider") },
    });
  const message = make("span", { class: "message" });
  const element = make("div", { class: "field" }, input, make("div", { class: "under" }, slider, message));

  function write(text, from) {
    const number = parse(text);
    set(Number.isNaN(number) ? text.trim() || (column.may_be_null ? null : "") : number);
    refresh(from);
  }

  /** Up and down move as the slider does, where there is one. */
  function step(event) {
    if (!scale || !["ArrowUp", "ArrowDown"].includes(event.key) || event.altKey || event.ctrlKey) return;
    event.preventDefault();
    const from = get();
    const by = (event.shiftKey ? 10 : 1) * (event.key === "ArrowUp" ? 1 : -1);
    const start = typeof from === "number" ? from : scale.min;
    let place = Math.round(scale.place(start) * scale.steps) + by;
    while (place > 0 && place < scale.steps && scale.value(place / scale.steps) === start) place += Math.sign(by);
    write(plain(scale.value(place / scale.steps)), "keys");
  }

  function show() {
    input.value = plain(get());
  }

  function refresh(from = "outside") {
    const value = get();
    const wrong = problem(column, value);
    const beyond = isBeyond(column, value);
    if (from !== "text") show();
    if (slider && from !== "slider" && typeof value === "number") slider.value = scale.place(value) * scale.steps;
    slider?.setAttribute("aria-valuetext", pretty(value));
    slider?.setAttribute("aria-label", `${label()}, slider`);
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
  const options = (column.categories ?? []).map((name) => make("option", { value: name }, name));
  const known = options.length > 0 && column.categories.length === column.distinct; // too many are not all listed
  const list = known || !options.length ? null : make("datalist", { id: `list-${(lists += 1)}` }, ...options);
  const input = known
    ? make("select", { on: { change: () => set(input.value) } }, ...options)
    : make("input", { type: "text", autocomplete: "off", list: list?.id, on: { input: () => set(input.value) } });
  const element = make("div", { class: "field" }, input, list, make("div", { class: "under" }));

  function refresh() {
    const value = String(get() ?? "");
    if (known && ![...input.options].some((option) => option.value === value)) {
      input.append(make("option", { value }, value || "(none)")); // from a link, or none: the model takes it for unseen
    }
    if (document.activeElement !== input || known) input.value = value;
    input.setAttribute("aria-label", label());
    element.classList.toggle("beyond", isBeyond(column, value));
    input.title = isBeyond(column, value) ? "Not seen in training" : "";
  }

  refresh();
  return { element, refresh, input };
}

/** Whether an alternative is available. */
function flagField(column, label, get, set) {
  const options = [
    ["1", "yes"],
    ["0", "no"],
  ].map(([value, text]) => make("option", { value }, text));
  const input = make("select", { on: { change: () => set(input.value === "1") } }, ...options);
  const refresh = () => {
    input.value = get() ? "1" : "0";
    input.setAttribute("aria-label", label());
  };
  refresh();
  return { element: make("div", { class: "field" }, input, make("div", { class: "under" })), refresh, input };
}
