// The picture of a preference map: colours on a canvas, with axes and marks as SVG above it. Grey is the share without
// the third alternative, and the full colours are at the largest distance from it.

import { make } from "./dom.js";
import { percent, pretty } from "./format.js";

const MARGIN = { left: 62, right: 12, top: 10, bottom: 84 };
const [LESS, SAME, MORE] = [[0xb3, 0x56, 0x1b], [0xee, 0xee, 0xee], [0x20, 0x63, 0x9b]]; // as in the report
const MIN_REACH = 0.05; // smaller effects get weaker colours
const STEP = 0.02; // share of the map per press of an arrow key

/** Draw into `root`. `share[j][i]` belongs to (x[i], y[j]); `move` is called with a position when c is moved. */
export function drawMap(root, picture) {
  const size = Math.floor(Math.min(root.clientWidth, 560) - MARGIN.left - MARGIN.right);
  if (size < 50) return;
  const focused = root.contains(document.activeElement) && document.activeElement.classList.contains("handle");
  const parts = root.querySelector("canvas") ? root.parts : build(root);
  parts.picture = picture;
  parts.size = size;
  const across = MARGIN.left + size + MARGIN.right;
  const down = MARGIN.top + size + MARGIN.bottom;
  parts.svg.setAttribute("width", across);
  parts.svg.setAttribute("height", down);
  const scale = colourScale(picture);
  const painted = [picture.share, size, scale.middle, scale.reach];
  if (painted.some((part, k) => part !== parts.painted?.[k])) paint(parts.canvas, picture, size, scale);
  parts.painted = painted;
  parts.scene.replaceChildren(
    ...axes(picture, size),
    ...legend(size, scale, picture.points[0].name),
    ...Object.entries(picture.effects).map(([name, at]) => effectMark(name, at, picture.points[0].position, size)),
    ...picture.points.filter((point) => point.role !== "c").map((point) => fixedMark(point, picture.points, size)),
  );
  placeHandle(parts, picture, size);
  if (focused) parts.handle.focus();
}

function build(root) {
  const canvas = make("canvas", { "aria-hidden": "true" });
  const scene = make("g");
  const knob = make("g", {
    class: "handle",
    tabindex: 0,
    role: "slider",
    "aria-valuemin": 0,
    "aria-valuemax": 100,
    "aria-roledescription": "position on the map",
  });
  const name = label("", 13, -9, 0, "named");
  knob.append(
    make("circle", { r: 18, class: "reach" }),
    make("circle", { r: 9, class: "knob" }),
    make("path", { d: "M-4 0H4M0 -4V4", class: "cross" }),
    name,
  );
  const area = make("rect", { class: "area", x: MARGIN.left, y: MARGIN.top });
  const svg = make("svg", {}, area, scene, knob);
  root.replaceChildren(canvas, svg);
  root.parts = { canvas, scene, handle: knob, name, svg, area };
  listen(root.parts);
  return root.parts;
}

// -- moving the third alternative --------------------------------------------------------------------------------

function listen(parts) {
  const { svg, handle: knob, area } = parts;
  const position = (event) => {
    const box = svg.getBoundingClientRect();
    return [
      (event.clientX - box.left - MARGIN.left) / parts.size,
      1 - (event.clientY - box.top - MARGIN.top) / parts.size,
    ];
  };
  let dragging = false;
  knob.addEventListener("pointerdown", (event) => {
    dragging = true;
    knob.setPointerCapture(event.pointerId);
    event.preventDefault();
    knob.focus();
  });
  knob.addEventListener("pointermove", (event) => dragging && parts.picture.move(position(event)));
  for (const end of ["pointerup", "pointercancel"]) knob.addEventListener(end, () => (dragging = false));
  area.addEventListener("click", (event) => parts.picture.move(position(event)));
  knob.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
    if (!by) return;
    event.preventDefault();
    const { position: at } = parts.picture.points.find((point) => point.role === "c");
    const step = event.shiftKey ? 5 * STEP : STEP;
    const {
      axes: [x, y],
    } = parts.picture;
    // on a short axis of whole numbers, move by one
    const steps = [x, y].map(({ scale }) => (scale.steps < 1 / STEP ? 1 / scale.steps : step));
    parts.picture.move(at.map((value, k) => value + by[k] * steps[k]));
  });
}

function placeHandle(parts, picture, size) {
  const { name, position: at, onMap } = picture.points.find((point) => point.role === "c");
  const [x, y] = spot(at, size);
  const values = picture.axes.map((axis, k) => `${axis.name} ${pretty(axis.scale.value(at[k]))}`).join(", ");
  parts.area.setAttribute("width", size);
  parts.area.setAttribute("height", size);
  parts.handle.setAttribute("aria-label", `Position of ${name}; move it with the arrow keys`);
  parts.handle.setAttribute("aria-valuetext", values);
  parts.handle.classList.toggle("outside", !onMap);
  parts.handle.setAttribute("aria-valuenow", Math.round(100 * at[0]));
  parts.handle.setAttribute("transform", `translate(${x} ${y})`);
  const far = at[0] > 0.8;
  parts.name.textContent = shorten(onMap ? name : `${name} (off the map)`);
  parts.name.setAttribute("x", far ? -13 : 13);
  parts.name.setAttribute("y", at[1] > 0.9 ? 18 : -9);
  parts.name.setAttribute("text-anchor", far ? "end" : "start");
}

// -- parts of the picture ----------------------------------------------------------------------------------------

/** The share without the third alternative, and the distance from it at which colours reach full strength. */
function colourScale({ share, middle }) {
  const distances = share.flat().map((value) => (value === null ? 0 : Math.abs(value - middle)));
  return { middle, reach: Math.max(MIN_REACH, ...distances) };
}

/** The colour of a share as [red, green, blue]. */
function colour(share, { middle, reach }) {
  const distance = Math.max(-1, Math.min(1, (share - middle) / reach));
  const end = distance > 0 ? MORE : LESS;
  return SAME.map((from, k) => Math.round(from + Math.abs(distance) * (end[k] - from)));
}

/** Paint the canvas, with linear interpolation between the points of the grid. */
function paint(canvas, { share, x, y, axes: [across, up] }, size, scale) {
  const n = Math.round(size * Math.min(2, window.devicePixelRatio || 1));
  canvas.width = n;
  canvas.height = n;
  canvas.style.width = `${size}px`;
  canvas.style.height = `${size}px`;
  canvas.style.left = `${MARGIN.left}px`;
  canvas.style.top = `${MARGIN.top}px`;
  const columns = lookup(x.map(across.scale.place), n);
  const rows = lookup(y.map(up.scale.place), n);
  const context = canvas.getContext("2d");
  const image = context.createImageData(n, n);
  const pixels = new Uint32Array(image.data.buffer);
  for (let r = 0; r < n; r += 1) {
    const [j, v] = rows[n - 1 - r];
    for (let s = 0; s < n; s += 1) {
      const [i, u] = columns[s];
      const below = share[j][i] * (1 - u) + share[j][i + 1] * u;
      const above = share[j + 1][i] * (1 - u) + share[j + 1][i + 1] * u;
      const [red, green, blue] = colour(below * (1 - v) + above * v, scale);
      pixels[r * n + s] = 0xff000000 + blue * 0x10000 + green * 0x100 + red; // opaque; the alpha byte is the highest
    }
  }
  context.putImageData(image, 0, 0);
}

/** For each pixel of an axis: the index of the grid point before it, and its distance from that point (0 to 1). */
function lookup(places, n) {
  let k = 0;
  return Array.from({ length: n }, (_, pixel) => {
    const u = (pixel + 0.5) / n;
    while (k < places.length - 2 && u > places[k + 1]) k += 1;
    const share = (u - places[k]) / (places[k + 1] - places[k] || 1);
    return [k, Math.min(1, Math.max(0, share))];
  });
}

const short = (value) => (Math.abs(value) >= 10_000 ? `${pretty(value / 1000)}k` : value.toLocaleString("en"));

const spot = ([u, v], size) => [MARGIN.left + u * size, MARGIN.top + (1 - v) * size];

function axes({ axes: [x, y] }, size) {
  const bottom = MARGIN.top + size;
  const name = ({ name: text, better }) =>
    text + (better ? (better > 0 ? " (more is better)" : " (less is better)") : "");
  const middle = MARGIN.top + size / 2;
  return [
    make("rect", { class: "frame", x: MARGIN.left, y: MARGIN.top, width: size, height: size }),
    ...x.scale.ticks.flatMap((value) => {
      const at = MARGIN.left + x.scale.place(value) * size;
      return [
        make("path", { class: "tickmark", d: `M${at} ${bottom}v5` }),
        make("text", { class: "axis", x: at, y: bottom + 18, "text-anchor": "middle" }, short(value)),
      ];
    }),
    ...y.scale.ticks.flatMap((value) => {
      const at = bottom - y.scale.place(value) * size;
      return [
        make("path", { class: "tickmark", d: `M${MARGIN.left} ${at}h-5` }),
        make("text", { class: "axis", x: MARGIN.left - 8, y: at + 4, "text-anchor": "end" }, short(value)),
      ];
    }),
    make("text", { class: "axis title", x: MARGIN.left + size / 2, y: bottom + 36, "text-anchor": "middle" }, name(x)),
    make(
      "text",
      { class: "axis title", x: 12, y: middle, "text-anchor": "middle", transform: `rotate(-90 12 ${middle})` },
      name(y),
    ),
  ];
}

function legend(size, scale, name) {
  const [low, high] = [-1, 1].map((end) => Math.min(1, Math.max(0, scale.middle + end * scale.reach)));
  const top = MARGIN.top + size + 50;
  const steps = 24;
  const width = Math.min(180, size - 140);
  const left = MARGIN.left + (size - width) / 2;
  return [
    ...Array.from({ length: steps }, (_, k) => {
      const [red, green, blue] = colour(low + (k * (high - low)) / (steps - 1), scale);
      return make("rect", {
        x: left + (k * width) / steps,
        y: top,
        width: width / steps + 0.5,
        height: 10,
        fill: `rgb(${red} ${green} ${blue})`,
      });
    }),
    make("rect", { class: "frame", x: left, y: top, width, height: 10 }),
    make("text", { class: "axis", x: left - 6, y: top + 9, "text-anchor": "end" }, percent(low)),
    make("text", { class: "axis", x: left + width + 6, y: top + 9 }, percent(high)),
    make(
      "text",
      { class: "axis", x: left + width / 2, y: top + 25, "text-anchor": "middle" },
      `blue: more people choose ${shorten(name)}`,
    ),
  ];
}

function effectMark(name, at, a, size) {
  const [x, y] = spot(at, size);
  const left = at[0] < a[0] ? at[0] > 0.22 : at[0] > 0.75; // away from a, if there is space
  return make(
    "g",
    { class: "effect", transform: `translate(${x} ${y})` },
    make("path", { d: "M0 -6L6 0L0 6L-6 0Z" }),
    label(name, left ? -9 : 9, 4, left ? 1 : 0, "word"),
  );
}

function fixedMark({ name, role, position: at }, [a, b], size) {
  const [x, y] = spot(at, size);
  const left = at[0] > 0.9;
  const below = role === "a" ? a.position[1] > b.position[1] : at[1] > 0.95; // a's effects are on the side away from b
  return make(
    "g",
    { class: `place ${role}`, transform: `translate(${x} ${y})` },
    make("circle", { r: 6 }),
    label(name, left ? -10 : 10, below ? 17 : -7, left ? 1 : 0, "named"),
  );
}

function label(text, x, y, end, kind) {
  return make("text", { class: `label ${kind}`, x, y, "text-anchor": end ? "end" : "start" }, shorten(text));
}

const shorten = (text) => (text.length > 16 ? `${text.slice(0, 15)}…` : text);
