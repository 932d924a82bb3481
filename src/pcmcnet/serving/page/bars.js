// Bars for the probability of an alternative: that of the model, that of the baseline, and a tick at the reference.

import { make } from "./dom.js";
import { percent, points } from "./format.js";

const ENDS = [0.1, 0.25, 0.5, 1];

/** The probability of a full-width bar: a round number above the largest one. So small probabilities stay readable. */
export function fullWidth(probabilities) {
  const largest = Math.max(0, ...probabilities);
  return ENDS.find((end) => largest <= end) ?? 1;
}

/** Draw the bars of all alternatives as a separate picture; rows are {name, p, q}, with q null without a baseline. */
export function drawBars(rows, full, names) {
  const [left, width, line] = [150, 420, rows.some(({ q }) => q !== null) ? 40 : 26];
  const height = line * rows.length + 30;
  const bar = (p, y, kind, thick) => [
    make("rect", { class: `picture-bar ${kind}`, x: left, y, width: (width * p) / full, height: thick }),
    make("text", { x: left + (width * p) / full + 6, y: y + thick - 3 }, percent(p)),
  ];
  const short = (name) => (name.length > 20 ? `${name.slice(0, 19)}…` : name);
  const parts = rows.flatMap(({ name, p, q }, k) => [
    make("text", { x: left - 8, y: line * k + 18, "text-anchor": "end" }, short(name)),
    ...bar(p, line * k + 6, "main", 15),
    ...(q === null ? [] : bar(q, line * k + 23, "baseline", 11)),
  ]);
  const key = make("text", { class: "axis", x: left, y: height - 8 }, names.join(" above "));
  return make("svg", { width: left + width + 60, height }, ...parts, key);
}

export function makeBars(hasBaseline) {
  const main = makeBar("main");
  const baseline = hasBaseline ? makeBar("baseline") : null;
  const element = make("div", { class: "bars" }, main.element, baseline?.element);

  /** Show probabilities, null if unknown; changes are relative to `mark`. */
  function show(p, q, mark, full) {
    main.show(p, mark, full);
    baseline?.show(q, null, full);
  }

  return { element, show };
}

function makeBar(kind) {
  const fill = make("span", { class: "fill" });
  const tick = make("span", { class: "tick", hidden: true });
  const number = make("span", { class: "value" }, "–");
  const change = make("span", { class: "change" });
  const track = make("span", { class: "track", "aria-hidden": "true" }, fill, tick);
  const element = make("div", { class: `bar ${kind}` }, track, number, kind === "main" ? change : null);

  function show(p, mark, full) {
    const share = (value) => `${(100 * Math.min(1, value / full)).toFixed(2)}%`;
    number.textContent = p === null ? "–" : percent(p);
    fill.style.width = p === null ? "0" : share(p);
    element.dataset.p = p ?? "";
    tick.hidden = mark === null || p === null || Math.abs(p - mark) < 0.0005;
    if (!tick.hidden) tick.style.left = share(mark);
    const difference = mark === null || p === null ? "" : points(p - mark);
    change.textContent = difference;
    change.className = `change ${difference.startsWith("+") ? "up" : difference ? "down" : ""}`;
  }

  return { element, show };
}
