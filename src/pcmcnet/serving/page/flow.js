// The chain behind the probabilities: alternatives as discs with their probability for area, arrows with the flow
// p_i q_ij for width. In the long run as much flows into a disc as out of it. Beyond the favourites all are one disc.

import { latest } from "./api.js";
import { make } from "./dom.js";
import { percent } from "./format.js";
import { savePicture } from "./picture.js";

const MOST = 8; // discs, the rest apart
const ARROWS = 28;

export class Flow {
  constructor(root, store, report) {
    this.root = root;
    this.picture = root.querySelector("[data-flow=picture]");
    this.numbers = root.querySelector("[data-flow=numbers]");
    this.store = store;
    this.report = report;
    this.question = latest("v1/rates");
    this.lit = null;
    root.querySelector("[data-flow=png]").addEventListener("click", () => {
      savePicture(this.picture, "Transition flows", "flows");
    });
    new ResizeObserver(() => this.draw()).observe(this.picture);
  }

  async update() {
    const names = this.store.value.rows.map((row) => row.name);
    try {
      const answer = await this.question({ set: this.store.choiceSet() });
      if (answer === undefined) return;
      this.found = gather(answer.rates, answer.probabilities, names);
      this.draw();
      this.report(null);
    } catch (error) {
      this.report(error);
    }
  }

  rename() {
    if (!this.found) return;
    const { rows } = this.store.value;
    this.found.discs.forEach(
      (disc) => (disc.name = disc.place === null ? disc.name : (rows[disc.place]?.name ?? disc.name)),
    );
    this.draw();
  }

  draw() {
    const width = Math.min(this.picture.clientWidth, 560);
    if (!this.found || width < 100) return;
    const svg = drawFlow(this.found, width, this.lit, (place) => this.light(place));
    const focused = this.picture.contains(document.activeElement) ? document.activeElement.dataset.disc : undefined;
    this.picture.replaceChildren(svg);
    if (focused !== undefined) this.picture.querySelector(`[data-disc="${focused}"]`)?.focus();
    this.write();
  }

  /** Bring out the arrows of one disc, by class: a new picture would lose the pointer. */
  light(place) {
    this.lit = place;
    for (const arrow of this.picture.querySelectorAll(".arrow")) {
      const own = place !== null && [arrow.dataset.from, arrow.dataset.to].includes(String(place));
      arrow.classList.toggle("lit", own);
      arrow.classList.toggle("dim", place !== null && !own);
    }
  }

  /** The same as a table, for those who want numbers or cannot see the picture. */
  write() {
    const { discs, flows } = this.found;
    const cell = (tag, text, more = {}) => make(tag, more, text);
    this.numbers.replaceChildren(
      make("caption", {}, "Share of all moves, from the row to the column"),
      make(
        "thead",
        {},
        make("tr", {}, cell("td", ""), ...discs.map((disc) => cell("th", disc.name, { scope: "col" }))),
      ),
      make(
        "tbody",
        {},
        ...discs.map((disc, i) =>
          make(
            "tr",
            {},
            cell("th", disc.name, { scope: "row" }),
            ...discs.map((_, j) => cell("td", i === j ? "" : percent(flows[i][j]))),
          ),
        ),
      ),
    );
  }
}

/** Keep the favourites and put the rest together; flows become shares of all moves. */
export function gather(rates, probabilities, names) {
  const order = probabilities.map((_, k) => k).sort((i, j) => probabilities[j] - probabilities[i]);
  const few = order.length > MOST + 1 ? order.slice(0, MOST).sort((i, j) => i - j) : order.sort((i, j) => i - j);
  const group = probabilities.map((_, k) => (few.includes(k) ? few.indexOf(k) : few.length));
  const discs = few.map((k) => ({ name: names[k], p: probabilities[k], place: k }));
  if (few.length < order.length) {
    const rest = probabilities.reduce((sum, p, k) => sum + (few.includes(k) ? 0 : p), 0);
    discs.push({ name: `${order.length - few.length} others`, p: rest, place: null });
  }
  const flows = discs.map(() => discs.map(() => 0));
  let all = 0;
  rates.forEach((row, i) =>
    row.forEach((rate, j) => {
      if (group[i] === group[j]) return;
      flows[group[i]][group[j]] += probabilities[i] * rate;
      all += probabilities[i] * rate;
    }),
  );
  return { discs, flows: flows.map((row) => row.map((flow) => (all > 0 ? flow / all : 0))) };
}

// -- the picture -------------------------------------------------------------------------------------------------

function drawFlow({ discs, flows }, width, lit, light) {
  const height = Math.min(width, 440);
  const n = discs.length;
  const across = Math.max(60, width / 2 - 74);
  const down = Math.max(60, height / 2 - 82);
  const apart = 2 * Math.min(across, down) * Math.sin(Math.PI / Math.max(n, 2)); // of neighbours, at least
  const largest = Math.max(10, Math.min(46, (apart - 36) / 2));
  const top = Math.max(...discs.map((disc) => disc.p));
  const spots = discs.map(({ p }, k) => {
    const angle = (2 * Math.PI * k) / n - Math.PI / 2;
    const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
    return {
      x: width / 2 + across * cos,
      y: height / 2 + down * sin,
      r: Math.max(3, largest * Math.sqrt(p / top)),
      cos,
      sin,
    };
  });
  const pairs = discs.flatMap((_, i) => discs.map((_, j) => ({ i, j, flow: flows[i][j] })));
  const shown = pairs
    .filter(({ i, j, flow }) => i !== j && flow > 0)
    .sort((one, other) => other.flow - one.flow)
    .slice(0, ARROWS);
  const greatest = shown[0]?.flow ?? 1;
  const arrows = shown.reverse().map((pair) => arrow(pair, spots, discs, greatest));
  const nodes = discs.map((disc, k) => node(disc, spots[k], k, light));
  const summary = discs.map((disc) => `${disc.name} ${percent(disc.p)}`).join(", ");
  return make(
    "svg",
    { width, height, role: "group", "aria-label": `Transition flows between ${summary}` },
    ...arrows,
    ...nodes,
  );
}

function node({ name, p, place }, { x, y, r, cos, sin }, k, light) {
  const anchor = Math.abs(cos) < 0.3 ? "middle" : cos > 0 ? "start" : "end";
  const [tx, ty] = [x + cos * (r + 8), y + sin * (r + 8) + (sin < -0.3 ? -12 : sin > 0.3 ? 12 : -2)];
  const short = name.length > 12 ? `${name.slice(0, 11)}…` : name;
  return make(
    "g",
    {
      ...{
        class: place === null ? "disc others" : "disc",
        tabindex: 0,
        role: "img",
        "aria-label": `${name}: ${percent(p)}`,
        "data-disc": k,
      },
      on: {
        pointerenter: () => light(k),
        pointerleave: () => light(null),
        focus: () => light(k),
        blur: () => light(null),
      },
    },
    make("circle", { cx: x, cy: y, r }),
    make("text", { class: "name", x: tx, y: ty, "text-anchor": anchor }, short),
    make("text", { class: "share", x: tx, y: ty + 14, "text-anchor": anchor }, percent(p)),
  );
}

/** A curved arrow that keeps to its right, so that the two directions of a pair do not cover one another. */
function arrow({ i, j, flow }, spots, discs, greatest) {
  const [from, to] = [spots[i], spots[j]];
  const width = Math.max(0.6, 9 * (flow / greatest));
  const head = 5 + width;
  const [dx, dy] = [to.x - from.x, to.y - from.y];
  const length = Math.hypot(dx, dy) || 1;
  const bend = 0.14 * length;
  const [cx, cy] = [(from.x + to.x) / 2 - (dy / length) * bend, (from.y + to.y) / 2 + (dx / length) * bend];
  const [sx, sy] = toward(from, { x: cx, y: cy }, from.r + 2);
  const [ex, ey] = toward(to, { x: cx, y: cy }, to.r + 3 + head);
  const [tx, ty] = toward(to, { x: cx, y: cy }, to.r + 3);
  const [ux, uy] = [(tx - ex) / head, (ty - ey) / head];
  const half = 2.2 + 0.8 * width;
  return make(
    "g",
    { class: "arrow", "data-from": i, "data-to": j, "data-flow": flow },
    make("path", { class: "shaft", d: `M${sx} ${sy}Q${cx} ${cy} ${ex} ${ey}`, "stroke-width": width }),
    make("polygon", { points: `${tx},${ty} ${ex - uy * half},${ey + ux * half} ${ex + uy * half},${ey - ux * half}` }),
    make("title", {}, `${discs[i].name} → ${discs[j].name}: ${percent(flow)} of all moves`),
  );
}

function toward(start, end, distance) {
  const length = Math.hypot(end.x - start.x, end.y - start.y) || 1;
  return [start.x + ((end.x - start.x) / length) * distance, start.y + ((end.y - start.y) / length) * distance];
}
