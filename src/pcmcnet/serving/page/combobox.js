// A text field with a list of known names. Typing filters the list; names that are not in the list are allowed.
//
// All fields share one list. It is drawn above the page, so a scrolling table does not cut it off.

import { make } from "./dom.js";

const MAX_LISTED = 60; // names in the list; typing finds the others

const list = make("ul", { id: "choices", role: "listbox", "aria-label": "Choices" });
const more = make("p", { "aria-hidden": "true" });
const popup = make("div", { class: "popup", hidden: true }, list, more);
let owner = null; // the field whose list is open

/** Make the field. `options` are the known names; `get` and `set` access the value. */
export function makeCombobox(options, get, set) {
  const input = make("input", {
    ...{ type: "text", role: "combobox", autocomplete: "off", spellcheck: "false" },
    ...{ "aria-autocomplete": "list", "aria-expanded": "false", "aria-controls": "choices" },
    on: {
      input: () => (set(input.value), open(input.value)),
      click: () => (owner === input ? close() : open("")),
      focus: () => input.select(),
      blur: () => owner === input && close(),
      keydown: (event) => onKey(event),
    },
  });
  let active = -1;

  function open(query) {
    if (!popup.isConnected) document.querySelector("main").append(popup);
    const matches = search(options, query);
    owner = input;
    list.replaceChildren(...matches.slice(0, MAX_LISTED).map((name, k) => option(name, k)));
    more.textContent = matches.length > MAX_LISTED ? `${matches.length - MAX_LISTED} more: type to search` : "";
    popup.hidden = matches.length === 0;
    input.setAttribute("aria-expanded", String(matches.length > 0));
    placePopup(input);
    activate(query === "" ? matches.indexOf(String(get() ?? "")) : -1);
  }

  function option(name, k) {
    const pointerdown = (event) => (event.preventDefault(), choose(name));
    return make("li", { id: `choice-${k}`, role: "option", "aria-selected": "false", on: { pointerdown } }, name);
  }

  function choose(name) {
    input.value = name;
    set(name);
    close();
  }

  function activate(index) {
    list.children[active]?.setAttribute("aria-selected", "false");
    active = index < list.children.length ? index : -1;
    const item = list.children[active];
    item?.setAttribute("aria-selected", "true");
    item?.scrollIntoView({ block: "nearest" });
    if (item) input.setAttribute("aria-activedescendant", item.id);
    else input.removeAttribute("aria-activedescendant");
  }

  function close() {
    owner = null;
    popup.hidden = true;
    active = -1;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  }

  function onKey(event) {
    const isOpen = owner === input && !popup.hidden;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && !isOpen) open("");
    else if (step) activate(Math.max(0, Math.min(list.children.length - 1, active + step)));
    else if (event.key === "Enter" && isOpen && active >= 0) choose(list.children[active].textContent);
    else if (event.key === "Escape" && isOpen) close();
    else return;
    event.preventDefault();
    event.stopImmediatePropagation(); // the table would move the focus to the next row
  }

  return input;
}

/** Names that contain the query; those that start with it come first. */
export function search(options, query) {
  const text = query.trim().toLowerCase();
  if (text === "") return options;
  const matches = options.filter((name) => name.toLowerCase().includes(text));
  const rank = (name) => (name.toLowerCase().startsWith(text) ? 0 : 1);
  return matches.sort((one, other) => rank(one) - rank(other));
}

/** Place the list below the field, or above it if there is more space. */
function placePopup(input) {
  const box = input.getBoundingClientRect();
  const below = window.innerHeight - box.bottom > 220 || box.top < 220;
  popup.style.left = `${Math.max(4, Math.min(box.left, window.innerWidth - 204))}px`;
  popup.style.minWidth = `${Math.max(box.width, 150)}px`;
  popup.style.top = below ? `${box.bottom + 2}px` : "auto";
  popup.style.bottom = below ? "auto" : `${window.innerHeight - box.top + 2}px`;
}

for (const event of ["scroll", "resize"])
  window.addEventListener(event, ({ target }) => owner && target !== list && placePopup(owner), true);
