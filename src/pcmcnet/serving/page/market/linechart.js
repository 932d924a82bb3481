// A chart of lines with bands, drawn as SVG. Lines differ by colour and by dashes, and have their names at the right.

import { make } from "../dom.js";
import { makeAxis } from "../scale.js";

const MAX_LINES = 8; // colours that can be told apart
const MARGIN = { left: 62, right: 112, top: 12, bottom: 44 };
const LABEL_HEIGHT = 14;
const TICK_WIDTH = 44; // pixels for the number of a tick

/**
 * Draw lines: [{name, points: [{x, y, low, high}]}] with low and high null without a band. `formats` are functions for
 * the ticks of both axes, `titles` the titles of the axes.
 */
export function drawLines(lines, { width, height, formats, titles, label }) {
  const shown = lines.slice(0, MAX_LINES);
  const values = shown.flatMap(({ points }) => points.flatMap(({ y, low, high }) => [y, low ?? y, high ?? y]));
  const xs = shown.flatMap(({ points }) => points.map(({ x }) => x));
  const [least, largest] = [Math.min(0, ...values), Math.max(...values)];
  const axes = {
    x: makeAxis(Math.min(...xs), Math.max(...xs), false),
    y: makeAxis(least, largest + 0.05 * (largest - least || 1), false),
  };
  const room = { width: width - MARGIN.left - MARGIN.right, height: height - MARGIN.top - MARGIN.bottom };
  const at = ({ x, y }) => [MARGIN.left + room.width * axes.x.place(x), MARGIN.top + room.height * (1 - axes.y.place(y))];
  return make(
    "svg",
    { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
    ...grid(axes, at, formats, { width, height, room }, titles),
    ...shown.flatMap((line, k) => drawLine(line, k, at)),
    ...names(shown, at, width),
  );
}

function grid(axes, at, formats, { height, room }, titles) {
  const [left, right] = [MARGIN.left, MARGIN.left + room.width];
  const bottom = MARGIN.top + room.height;
  const ofY = axes.y.ticks.flatMap((tick) => {
    const y = at({ x: axes.x.low, y: tick })[1];
    return [make("line", { class: "gridline", x1: left, x2: right, y1: y, y2: y }), make("text", { class: "axis", x: left - 8, y: y + 4, "text-anchor": "end" }, formats.y(tick))];
  });
  const step = Math.ceil((TICK_WIDTH * axes.x.ticks.length) / room.width);
  const middle = axes.x.ticks.indexOf(0);
  const ofX = axes.x.ticks.filter((_, k) => (k - middle) % step === 0).flatMap((tick) => {
    const x = at({ x: tick, y: axes.y.low })[0];
    return [make("line", { class: tick === 0 ? "today" : "gridline", x1: x, x2: x, y1: MARGIN.top, y2: bottom }), make("text", { class: "axis", x, y: bottom + 17, "text-anchor": "middle" }, formats.x(tick))];
  });
  const title = make("text", { class: "axis title", x: left + room.width / 2, y: height - 6, "text-anchor": "middle" }, titles.x);
  return [...ofY, ...ofX, title];
}

function drawLine({ points }, k, at) {
  const path = (list) => list.map((point) => at(point).map((value) => value.toFixed(1)).join(",")).join(" L");
  const hasBand = points.every(({ low }) => low !== null && low !== undefined);
  const upper = points.map(({ x, high }) => ({ x, y: high }));
  const lower = points.map(({ x, low }) => ({ x, y: low })).reverse();
  const band = hasBand ? [make("path", { class: `band series-${k}`, d: `M${path([...upper, ...lower])} Z` })] : [];
  return [...band, make("path", { class: `line series-${k}`, d: `M${path(points)}` })];
}

/** The names of the lines at their right ends, moved apart where they would overlap. */
function names(lines, at, width) {
  const ends = lines.map(({ name, points }, k) => ({ name, k, y: at(points.at(-1))[1] })).sort((one, other) => one.y - other.y);
  let last = -Infinity;
  for (const end of ends) {
    end.y = Math.max(end.y, last + LABEL_HEIGHT);
    last = end.y;
  }
  const x = width - MARGIN.right + 8;
  const short = (name) => (name.length > 15 ? `${name.slice(0, 14)}…` : name);
  return ends.map(({ name, k, y }) => make("text", { class: `line-name series-${k}`, x, y: y + 4 }, short(name)));
}
