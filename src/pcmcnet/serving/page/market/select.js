// Options of select elements and groups of checkboxes.

import { make } from "../dom.js";

/** Fill a select element with [[value, text]], and keep its value if it is still among them. */
export function fill(select, options) {
  const previous = select.options.length ? select.value : null;
  select.replaceChildren(...options.map(([value, text]) => make("option", { value }, text)));
  if (options.some(([value]) => value === previous)) select.value = previous;
}

/** Choose an option or, if the select element does not have it, the default option. */
export function choose(select, value) {
  const options = [...select.options];
  const option = options.find((one) => one.value === value) ?? options.find((one) => one.defaultSelected) ?? options[0];
  if (option) select.value = option.value;
}

/** Fill a group with checkboxes for names. */
export function fillChecks(root, names, changed) {
  const on = { change: changed };
  const box = (name) => make("input", { type: "checkbox", value: name, on });
  root.replaceChildren(...names.map((name) => make("label", { class: "check" }, box(name), name)));
}

export function checkedNames(root) {
  return [...root.querySelectorAll("input:checked")].map((box) => box.value);
}
