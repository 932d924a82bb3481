// A chart of lines with bands, drawn as SVG. Lines differ by colour and by dashes, and have their names at the right.

import { make } from "../dom.js";
import { makeAxis } from "../scale.js";

const MAX_LINES = 8; // distinguishable colours
const MARGIN = { left: 62, right: 112, top: 12, bottom: 44 };
const LABEL_HEIGHT = 14;
const TICK_WIDTH = 44; // pixels for the number of a tick

/**
 * Draw lines: [{name, points: [{x, y, low, high}]}] with low and high null without a band. `formats` are functions for
 * the ticks of both axes, `title` is that of the horizontal axis.
 */
export function drawLines(lines, { width, height, formats, title, label }) {
  const shown = lines.slice(0, MAX_LINES);
  const frame = makeFrame(shown, width, height);
  const middle = (frame.left + frame.right) / 2;
  return make(
    "svg",
    { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
    ...drawRows(frame, formats.y),
    ...drawColumns(frame, formats.x),
    make("text", { class: "axis title", x: middle, y: height - 6, "text-anchor": "middle" }, title),
    ...shown.flatMap((line, k) => drawLine(line, k, frame)),
    ...drawNames(shown, frame),
  );
}

/** The axes, the sides of the frame, and a function from values to pixels. The vertical axis contains 0. */
function makeFrame(lines, width, height) {
  const points = lines.flatMap((line) => line.points);
  const xs = points.map(({ x }) => x);
  const ys = points.flatMap(({ y, low, high }) => [y, low ?? y, high ?? y]);
  const [least, largest] = [Math.min(0, ...ys), Math.max(...ys)];
  const axes = {
    x: makeAxis(Math.min(...xs), Math.max(...xs), false),
    y: makeAxis(least, largest + 0.05 * (largest - least || 1), false),
  };
  const sides = { left: MARGIN.left, right: width - MARGIN.right, top: MARGIN.top, bottom: height - MARGIN.bottom };
  const xAt = (x) => sides.left + (sides.right - sides.left) * axes.x.place(x);
  const yAt = (y) => sides.bottom - (sides.bottom - sides.top) * axes.y.place(y);
  return { axes, ...sides, xAt, yAt };
}

function drawRows({ axes, left, right, yAt }, format) {
  return axes.y.ticks.flatMap((tick) => [
    make("line", { class: "gridline", x1: left, x2: right, y1: yAt(tick), y2: yAt(tick) }),
    make("text", { class: "axis", x: left - 8, y: yAt(tick) + 4, "text-anchor": "end" }, format(tick)),
  ]);
}

/** Vertical lines; that at 0 marks today. A narrow picture has fewer ticks. */
function drawColumns({ axes, left, right, top, bottom, xAt }, format) {
  const { ticks } = axes.x;
  const step = Math.ceil((TICK_WIDTH * ticks.length) / (right - left));
  const shown = ticks.filter((_, k) => (k - ticks.indexOf(0)) % step === 0);
  return shown.flatMap((tick) => [
    make("line", { class: tick === 0 ? "today" : "gridline", x1: xAt(tick), x2: xAt(tick), y1: top, y2: bottom }),
    make("text", { class: "axis", x: xAt(tick), y: bottom + 17, "text-anchor": "middle" }, format(tick)),
  ]);
}

function drawLine({ points }, k, { xAt, yAt }) {
  const path = (list) => list.map(([x, y]) => `${xAt(x).toFixed(1)},${yAt(y).toFixed(1)}`).join(" L");
  const line = make("path", { class: `line series-${k}`, d: `M${path(points.map(({ x, y }) => [x, y]))}` });
  if (points.some(({ low }) => low === null)) return [line];
  const edge = [...points.map(({ x, high }) => [x, high]), ...points.map(({ x, low }) => [x, low]).reverse()];
  return [make("path", { class: `band series-${k}`, d: `M${path(edge)} Z` }), line];
}

/** The names of the lines at their right ends, moved apart where they would overlap. */
function drawNames(lines, { right, yAt }) {
  const ends = lines.map(({ name, points }, k) => ({ name, k, y: yAt(points.at(-1).y) }));
  ends.sort((one, other) => one.y - other.y);
  let last = -Infinity;
  for (const end of ends) last = end.y = Math.max(end.y, last + LABEL_HEIGHT);
  const short = (name) => (name.length > 15 ? `${name.slice(0, 14)}…` : name);
  return ends.map(({ name, k, y }) =>
    make("text", { class: `line-name series-${k}`, x: right + 8, y: y + 4 }, short(name)),
  );
}
