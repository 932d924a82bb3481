// The little of a framework that the page needs.

/** Wait until calls stop for a while; the last one counts. */
export function debounce(wait, call) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => call(...given), wait);
  };
}

/** Make an element: attributes by name, `on` for listeners, children as text or elements. */
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

/** Let a long name break where its words meet: totalPrice, trip_time. */
export function breakable(name) {
  return name.replace(/([a-z\d])([A-Z])/g, "$1\u200b$2").replace(/([_.:/-])/g, "$1\u200b");
}

/** What people call a column, with its unit. */
export function titled(column) {
  return column.unit ? `${column.title} (${column.unit})` : column.title;
}
