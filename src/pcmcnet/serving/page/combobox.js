// A field for one of many names: a list that opens below it and is searched as one types. Any other name may be typed.
//
// The list is one for the whole page, and stands above everything, so that no scrolling table cuts it off.

import { make } from "./dom.js";

const SHOWN = 60; // names at once; typing finds the others

const list = make("ul", { id: "choices", role: "listbox", "aria-label": "Choices" });
const more = make("p", { "aria-hidden": "true" });
const popup = make("div", { class: "popup", hidden: true }, list, more);
let owner = null; // the field whose list is open

/** Make the field: `options` are known names, `get` and `set` its value. */
export function makeCombobox(options, get, set) {
  const input = make("input", {
    ...{ type: "text", role: "combobox", autocomplete: "off", spellcheck: "false" },
    ...{ "aria-autocomplete": "list", "aria-expanded": "false", "aria-controls": "choices" },
    on: {
      input: () => (set(input.value), open(input.value)),
      click: () => (owner === input ? close() : open("")),
      focus: () => input.select(),
      blur: () => owner === input && close(),
      keydown: (event) => key(event),
    },
  });
  let active = -1;

  function open(sought) {
    if (!popup.isConnected) document.querySelector("main").append(popup);
    const found = search(options, sought);
    owner = input;
    list.replaceChildren(...found.slice(0, SHOWN).map((name, k) => option(name, k)));
    more.textContent = found.length > SHOWN ? `and ${found.length - SHOWN} more: type to find them` : "";
    popup.hidden = found.length === 0;
    input.setAttribute("aria-expanded", String(found.length > 0));
    place(input);
    go(sought === "" ? found.indexOf(String(get() ?? "")) : -1);
  }

  function option(name, k) {
    const take = (event) => (event.preventDefault(), choose(name));
    return make("li", { id: `choice-${k}`, role: "option", "aria-selected": "false", on: { pointerdown: take } }, name);
  }

  function choose(name) {
    input.value = name;
    set(name);
    close();
  }

  function go(to) {
    list.children[active]?.setAttribute("aria-selected", "false");
    active = to < list.children.length ? to : -1;
    const here = list.children[active];
    here?.setAttribute("aria-selected", "true");
    here?.scrollIntoView({ block: "nearest" });
    if (here) input.setAttribute("aria-activedescendant", here.id);
    else input.removeAttribute("aria-activedescendant");
  }

  function close() {
    owner = null;
    popup.hidden = true;
    active = -1;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  }

  function key(event) {
    const isOpen = owner === input && !popup.hidden;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && !isOpen) open("");
    else if (step) go(Math.max(0, Math.min(list.children.length - 1, active + step)));
    else if (event.key === "Enter" && isOpen && active >= 0) choose(list.children[active].textContent);
    else if (event.key === "Escape" && isOpen) close();
    else return;
    event.preventDefault();
    event.stopImmediatePropagation(); // the table does not move on
  }

  return input;
}

/** Names that hold what is sought, those that begin with it first. */
export function search(options, sought) {
  const text = sought.trim().toLowerCase();
  if (text === "") return options;
  const found = options.filter((name) => name.toLowerCase().includes(text));
  const begins = (name) => (name.toLowerCase().startsWith(text) ? 0 : 1);
  return found.sort((one, other) => begins(one) - begins(other));
}

/** Below the field, or above it where there is more room. */
function place(input) {
  const box = input.getBoundingClientRect();
  const below = window.innerHeight - box.bottom > 220 || box.top < 220;
  popup.style.left = `${Math.max(4, Math.min(box.left, window.innerWidth - 204))}px`;
  popup.style.minWidth = `${Math.max(box.width, 150)}px`;
  popup.style.top = below ? `${box.bottom + 2}px` : "auto";
  popup.style.bottom = below ? "auto" : `${window.innerHeight - box.top + 2}px`;
}

for (const event of ["scroll", "resize"])
  window.addEventListener(event, (found) => owner && found.target !== list && place(owner), true);
