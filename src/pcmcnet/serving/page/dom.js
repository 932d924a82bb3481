// Helper functions for elements and timers.

/** Return a function that waits until calls stop for `wait` milliseconds; only the last call is made. */
export function debounce(wait, call) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => call(...values), wait);
  };
}

/** Make an element. `attributes` are set by name, `on` has the listeners, children are texts or elements. */
export function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "g", "path", "circle", "rect", "line", "text", "tspan", "defs", "marker", "title", "polygon"];
  const element = svg.includes(tag)
    ? document.createElementNS("http://www.w3.org/2000/svg", tag)
    : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child != null));
  return element;
}

/** Allow line breaks between the words of a long name: totalPrice, trip_time. */
export function breakable(name) {
  return name.replace(/([a-z\d])([A-Z])/g, "$1\u200b$2").replace(/([_.:/-])/g, "$1\u200b");
}

/** The title of a column, with its unit. */
export function titled(column) {
  return column.unit ? `${column.title} (${column.unit})` : column.title;
}

/** Whether a key is pressed in a text field, where the browser handles Ctrl+Z. */
export const isTyping = ({ target }) => target.matches("input:not([type=range], [type=checkbox]), textarea");

/** Copy a text to the clipboard. Returns whether it worked. Browsers offer `navigator.clipboard` only with https. */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = make("textarea", { class: "off-screen", "aria-hidden": "true" });
    const focused = document.activeElement;
    document.body.append(field);
    field.value = text;
    field.select();
    const copied = document.execCommand("copy");
    field.remove();
    focused?.focus();
    return copied;
  }
}
