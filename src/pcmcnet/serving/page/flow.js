// The Markov chain of the model. A disc is an alternative; its area is the probability. An arrow is a flow; its width
// is p_i q_ij. The flows into a disc equal the flows out of it. Alternatives with low probability share one disc.

import { latestRequest } from "./api.js";
import { make } from "./dom.js";
import { percent } from "./format.js";
import { savePicture } from "./picture.js";

const MAX_DISCS = 8; // not counting the disc of the other alternatives
const MAX_ARROWS = 28;

export class Flow {
  constructor(root, store, report) {
    this.root = root;
    this.picture = root.querySelector("[data-flow=picture]");
    this.numbers = root.querySelector("[data-flow=numbers]");
    this.store = store;
    this.report = report;
    this.request = latestRequest("v1/rates");
    root.querySelector("[data-flow=png]").addEventListener("click", () => {
      savePicture(this.picture, "Transition flows", "flows");
    });
    new ResizeObserver(() => this.draw()).observe(this.picture);
  }

  async update() {
    const names = this.store.value.rows.map((row) => row.name);
    try {
      const response = await this.request({ set: this.store.choiceSet() });
      if (response === undefined) return;
      this.chain = summarise(response.rates, response.probabilities, names);
      this.draw();
      this.report(null);
    } catch (error) {
      this.report(error);
    }
  }

  rename() {
    if (!this.chain) return;
    const { rows } = this.store.value;
    this.chain.discs.forEach(
      (disc) => (disc.name = disc.place === null ? disc.name : (rows[disc.place]?.name ?? disc.name)),
    );
    this.draw();
  }

  draw() {
    const width = Math.min(this.picture.clientWidth, 560);
    if (!this.chain || width < 100) return;
    const svg = drawFlow(this.chain, width, (place) => this.highlight(place));
    const focused = this.picture.contains(document.activeElement) ? document.activeElement.dataset.disc : undefined;
    this.picture.replaceChildren(svg);
    if (focused !== undefined) this.picture.querySelector(`[data-disc="${focused}"]`)?.focus();
    this.drawTable();
  }

  /** Highlight the arrows of one disc. Only classes change: redrawing would lose the pointer. */
  highlight(place) {
    for (const arrow of this.picture.querySelectorAll(".arrow")) {
      const isHighlighted = place !== null && [arrow.dataset.from, arrow.dataset.to].includes(String(place));
      arrow.classList.toggle("lit", isHighlighted);
      arrow.classList.toggle("dim", place !== null && !isHighlighted);
    }
  }

  /** Show the flows as a table, for screen readers and for exact numbers. */
  drawTable() {
    const { discs, flows } = this.chain;
    const cell = (tag, text, more = {}) => make(tag, more, text);
    this.numbers.replaceChildren(
      make("caption", {}, "Share of all moves that lead from the row's alternative to the column's alternative"),
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

/** Keep the most probable alternatives and group the others; flows become shares of all moves. */
export function summarise(rates, probabilities, names) {
  const order = probabilities.map((_, k) => k).sort((i, j) => probabilities[j] - probabilities[i]);
  const few = (order.length > MAX_DISCS + 1 ? order.slice(0, MAX_DISCS) : order).sort((i, j) => i - j);
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

// -- picture -----------------------------------------------------------------------------------------------------

function drawFlow({ discs, flows }, width, highlight) {
  const height = Math.min(width, 440);
  const n = discs.length;
  const across = Math.max(60, width / 2 - 74);
  const down = Math.max(60, height / 2 - 82);
  const apart = 2 * Math.min(across, down) * Math.sin(Math.PI / Math.max(n, 2)); // least distance of two neighbours
  const maxRadius = Math.max(10, Math.min(46, (apart - 36) / 2));
  const top = Math.max(...discs.map((disc) => disc.p));
  const spots = discs.map(({ p }, k) => {
    const angle = (2 * Math.PI * k) / n - Math.PI / 2;
    const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
    return {
      x: width / 2 + across * cos,
      y: height / 2 + down * sin,
      r: Math.max(3, maxRadius * Math.sqrt(p / top)),
      cos,
      sin,
    };
  });
  const pairs = discs.flatMap((_, i) => discs.map((_, j) => ({ i, j, flow: flows[i][j] })));
  const shown = pairs
    .filter(({ i, j, flow }) => i !== j && flow > 0)
    .sort((one, other) => other.flow - one.flow)
    .slice(0, MAX_ARROWS);
  const largestFlow = shown[0]?.flow ?? 1;
  const arrows = shown.reverse().map((pair) => arrow(pair, spots, discs, largestFlow));
  const nodes = discs.map((disc, k) => node(disc, spots[k], k, highlight));
  const summary = discs.map((disc) => `${disc.name} ${percent(disc.p)}`).join(", ");
  return make(
    "svg",
    { width, height, role: "group", "aria-label": `Transition flows between ${summary}` },
    ...arrows,
    ...nodes,
  );
}

function node({ name, p, place }, { x, y, r, cos, sin }, k, highlight) {
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
        pointerenter: () => highlight(k),
        pointerleave: () => highlight(null),
        focus: () => highlight(k),
        blur: () => highlight(null),
      },
    },
    make("circle", { cx: x, cy: y, r }),
    make("text", { class: "name", x: tx, y: ty, "text-anchor": anchor }, short),
    make("text", { class: "share", x: tx, y: ty + 14, "text-anchor": anchor }, percent(p)),
  );
}

/** A curved arrow. Both directions of a pair bend to their right, so they do not overlap. */
function arrow({ i, j, flow }, spots, discs, largestFlow) {
  const [from, to] = [spots[i], spots[j]];
  const width = Math.max(0.6, 9 * (flow / largestFlow));
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
