// The keyboard focus in lists that are drawn again, and marks on tables that are wider than the screen.

const FOCUSABLE = "button, input, select, a[href]";

/** Call `redraw`, and move the focus to the element at the same place, or to `fallback` if nothing is left. */
export function keepFocus(root, redraw, fallback = null) {
  const place = [...root.querySelectorAll(FOCUSABLE)].indexOf(document.activeElement);
  redraw();
  if (place < 0) return;
  const left = root.querySelectorAll(FOCUSABLE);
  (left[Math.min(place, left.length - 1)] ?? fallback)?.focus();
}

/** Mark a table that has more columns on its right, which the style sheet then hints at. */
export function markOverflow(root) {
  root.classList.toggle("has-more", root.scrollLeft + root.clientWidth < root.scrollWidth - 2);
}
