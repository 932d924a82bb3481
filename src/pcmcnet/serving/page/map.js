// The preference map: the share of a among those who choose a or b, for every position of a third alternative c in two
// features. Blue means a larger share than without c, and orange a smaller one, as in the report. Pointer and arrow keys
// move c on the map.

import { latestRequest, sendRequest } from "./api.js";
import { make, titled } from "./dom.js";
import { EFFECTS, findEffects, pairsOf, tradesOff } from "./effects.js";
import { percent, points } from "./format.js";
import { drawMap } from "./mapdraw.js";
import { savePicture } from "./picture.js";
import { makeAxis, makeScale } from "./scale.js";

const COARSE_POINTS = 9; // per axis of the first, quick map
const MARGIN = 1.25; // around a and b, as a multiple of their distance; leaves room for the compromise effect

export class PreferenceMap {
  constructor(root, store, report) {
    this.root = root;
    this.store = store;
    this.report = report;
    this.requestMap = latestRequest("v1/map");
    this.requestShares = latestRequest("v1/probabilities");
    this.scales = new Map(store.features.map((column) => [column.name, makeScale(column)]));
    this.numeric = store.features.filter((column) => this.scales.get(column.name));
    this.better = new Map(); // feature -> 1 (more is better), -1 (less is better) or 0 (no difference), by the model
    this.key = null; // identifies the map shown
    this.grid = null;
    this.find = (name) => root.querySelector(`[data-map=${name}]`);
    this.connect();
  }

  get isPossible() {
    return this.numeric.length >= 2;
  }

  connect() {
    for (const role of ["a", "b", "c", "x", "y", "model", "among"]) {
      this.find(role).addEventListener("change", (event) => this.choose(role, event.target.value));
    }
    this.find("png").addEventListener("click", () => this.save());
    this.find("swap").addEventListener("click", () => {
      this.store.change("map", ({ map }) => ([map.a, map.b] = [map.b, map.a]));
    });
    for (const name of Object.keys(EFFECTS)) {
      this.find(name).addEventListener("click", () => this.moveTo(this.effectPositions()[name]));
    }
    new ResizeObserver(() => this.draw()).observe(this.find("picture"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  /** Set a role. If another role has the new value, the two roles swap values. */
  choose(role, text) {
    const value = ["a", "b", "c"].includes(role) ? Number(text) : text;
    const family = [["a", "b", "c"], ["x", "y"], ["model"], ["among"]].find((roles) => roles.includes(role));
    this.store.change("map", ({ map }) => {
      for (const other of family) if (other !== role && map[other] === value) map[other] = map[role];
      map[role] = value;
    });
  }

  // -- alternatives and axes -------------------------------------------------------------------------------------

  /**
   * Find out which features matter to the model, and whether more or less of each is better. Each of the favourite
   * alternatives (at most three) moves from the first to the third quartile of each feature in the choice set. If a
   * feature does not vary in the set, the quartiles of the training data are used, and the feature comes last. Sets the
   * directions and the order of the features.
   */
  async rankFeatures(favourites) {
    const set = this.store.choiceSet();
    const { limits } = this.store.schema;
    const count = 2 * this.numeric.length * favourites.length;
    if (count > limits.sets || count * set.alternatives.length ** 2 > limits.pairs) {
      this.useSchemaOrder();
      return;
    }
    const moved = (favourite, column, u) => ({
      individual: set.individual,
      alternatives: set.alternatives.map((values, k) =>
        k === favourite ? { ...values, [column.name]: ends.get(column.name)[u] } : values,
      ),
    });
    const ends = new Map(this.numeric.map((column) => [column.name, this.quartiles(column.name)]));
    const moves = this.numeric.flatMap((column) => favourites.map((favourite) => [column, favourite]));
    const sets = moves.flatMap(([column, favourite]) => [0, 1].map((u) => moved(favourite, column, u)));
    const response = await sendRequest("v1/probabilities", { sets, model: "main" });
    const logOdds = (k) => {
      const p = response.sets[k].probabilities[moves[k >> 1][1]];
      const clipped = Math.min(1 - 1e-9, Math.max(1e-9, p));
      return Math.log(clipped / (1 - clipped));
    };
    const changes = moves.map((_, k) => logOdds(2 * k + 1) - logOdds(2 * k));
    const gains = this.numeric.map((column, j) => {
      const ofColumn = changes.slice(j * favourites.length, (j + 1) * favourites.length);
      return [column.name, ofColumn.reduce((sum, change) => sum + change, 0) / ofColumn.length];
    });
    for (const [name, gain] of gains) this.better.set(name, Math.abs(gain) < 1e-9 ? 0 : Math.sign(gain));
    const size = ([name, gain]) => Math.abs(gain) - (ends.get(name)[2] ? 0 : 1e6);
    this.order = gains.sort((one, other) => size(other) - size(one)).map(([name]) => name);
  }

  /** First and third quartile of a feature in the set or in the training data, and whether it varies in the set. */
  quartiles(name) {
    const values = this.store.value.rows.map((row) => this.number(row.id, name)).sort((one, other) => one - other);
    const at = (u) => values[Math.round(u * (values.length - 1))];
    const scale = this.scales.get(name);
    if (at(0.25) < at(0.75)) return [at(0.25), at(0.75), true];
    return at(0) < at(1) ? [at(0), at(1), true] : [scale.raw(0.25), scale.raw(0.75), false];
  }

  /** Fallback: offer the features in the order of the schema, and mark no effects. */
  useSchemaOrder() {
    this.order = this.numeric.map((column) => column.name);
  }

  /** Choose defaults: the two features that matter most, and favourites that trade off. */
  fill(probabilities) {
    const { map, rows } = this.store.value;
    const names = this.order;
    const p = (id) => probabilities?.get(id) ?? 0;
    const free = rows.map((row) => row.id).sort((one, other) => p(other) - p(one));
    const open = { axes: map.x === null && map.y === null, ends: map.a === null && map.b === null };
    const axes = open.axes ? [names.slice(0, 2)] : [[map.x, map.y]];
    const ends = open.ends ? pairsOf(free.slice(0, 8)) : [[map.a, map.b]];
    const options = ends
      .flatMap(([a, b], j) => axes.map(([x, y], i) => ({ option: { a, b, x, y }, late: i + j })))
      .sort((one, other) => one.late - other.late)
      .map(({ option }) => option);
    const usable = options.filter(
      (option) => Object.values(option).every((value) => value !== null) && this.hasTradeOff(option),
    );
    const apart = ({ a, b, x, y }) => [x, y].some((name) => this.number(a, name) !== this.number(b, name));
    const withAllEffects = usable.find((option) => this.countEffects(option) === 3);
    Object.assign(map, withAllEffects ?? usable[0] ?? options.find(apart) ?? options[0]);
    const place = (id) => rows.findIndex((row) => row.id === id);
    if (open.ends && place(map.a) > place(map.b)) [map.a, map.b] = [map.b, map.a];
    map.x ??= names.find((name) => name !== map.y);
    map.y ??= names.find((name) => name !== map.x);
    const left = () => free.filter((id) => ![map.a, map.b, map.c].includes(id));
    for (const role of ["a", "b"]) map[role] ??= left()[0] ?? null;
    map.c ??= left().find((id) => this.isOnMap(id)) ?? left()[0] ?? null;
  }

  /** Whether two alternatives trade off in two features, by a clear margin on the scale of the training data. */
  hasTradeOff({ a, b, x, y }) {
    const rank = (id) => [x, y].map((name) => this.scales.get(name).place(this.number(id, name)));
    return tradesOff(rank(a), rank(b), this.directions({ x, y }), 0.04);
  }

  /** The number of effects that fit on a map. */
  countEffects(option) {
    return Object.keys(this.effectPositions(option)).length;
  }

  directions({ x, y } = this.store.value.map) {
    return [this.better.get(x) ?? 0, this.better.get(y) ?? 0];
  }

  number(id, name) {
    const value = this.store.row(id)?.values[name];
    return typeof value === "number" ? value : this.scales.get(name).raw(0.5);
  }

  /** The axis of a feature: a and b with a margin around them, within the range of the training data. */
  axis(name, { a, b } = this.store.value.map) {
    const scale = this.scales.get(name);
    const both = [this.number(a, name), this.number(b, name)];
    const usual = Math.max((scale.raw(0.75) - scale.raw(0.25)) / 2, (scale.max - scale.min) / 100);
    const margin = MARGIN * Math.max(Math.abs(both[0] - both[1]), usual);
    const low = Math.max(Math.min(scale.min, ...both), Math.min(...both) - margin);
    const high = Math.min(Math.max(scale.max, ...both), Math.max(...both) + margin);
    return scale.whole ? makeAxis(Math.floor(low), Math.ceil(high), true) : makeAxis(low, high, false);
  }

  /** The position of an alternative on the map, from (0, 0) to (1, 1). */
  position(id, map = this.store.value.map) {
    return [map.x, map.y].map((name) => this.axis(name, map).place(this.number(id, name)));
  }

  isOnMap(id) {
    const { x, y } = this.store.value.map;
    return [x, y].every((name) => this.axis(name).contains(this.number(id, name)));
  }

  effectPositions(map = this.store.value.map) {
    return findEffects(this.position(map.a, map), this.position(map.b, map), this.directions(map));
  }

  moveTo(position) {
    const { x, y, c } = this.store.value.map;
    if (!position) return;
    this.store.change(
      "cell",
      () => {
        const { values } = this.store.row(c);
        [x, y].forEach((name, k) => (values[name] = this.axis(name).value(Math.min(1, Math.max(0, position[k])))));
      },
      `map ${c}`,
    );
  }

  // -- requests --------------------------------------------------------------------------------------------------

  /** Update the map. The grid is requested again only if it changed. */
  async update(probabilities) {
    if (!this.isPossible) return;
    const { rows, map } = this.store.value;
    this.root.classList.toggle("few", rows.length < 3);
    if (rows.length < 3) return;
    this.fill(probabilities);
    this.store.save();
    this.fillSelects();
    const shownRows = map.among === "all" ? rows : rows.filter((row) => [map.a, map.b, map.c].includes(row.id));
    const [a, b, c] = [map.a, map.b, map.c].map((id) => shownRows.findIndex((row) => row.id === id));
    const set = { ...this.store.choiceSet(), alternatives: shownRows.map((row) => ({ ...row.values })) };
    const fixed = set.alternatives.map((values, k) => (k === c ? { ...values, [map.x]: 0, [map.y]: 0 } : values));
    const key = JSON.stringify([set.individual, fixed, a, b, c, map.x, map.y, map.model]);
    try {
      await this.updateShares(set, { a, b, c });
      this.draw();
      if (key !== this.key) await this.updateGrid(key, set, { a, b, c });
      this.report(null);
    } catch (error) {
      this.report(error);
    }
  }

  /** Request the share of a with c at its current position, and without c. */
  async updateShares(set, { a, b, c }) {
    const setWithoutC = { ...set, alternatives: set.alternatives.filter((_, k) => k !== c) };
    const response = await this.requestShares({ sets: [set, setWithoutC], model: this.store.value.map.model });
    if (response === undefined) return;
    const [p, q] = response.sets.map(({ probabilities }) => probabilities);
    const [indexA, indexB] = [a - (a > c), b - (b > c)];
    this.shares = { withC: p[a] / (p[a] + p[b]), withoutC: q[indexA] / (q[indexA] + q[indexB]) };
  }

  /** Request the map: first with few points, then with many. */
  async updateGrid(key, set, { a, b, c }) {
    const { x, y, model } = this.store.value.map;
    const { limits } = this.store.schema;
    const size = set.alternatives.length;
    const wanted = size <= 10 ? 33 : size <= 25 ? 25 : 17;
    const fine = Math.max(2, Math.min(wanted, limits.points, Math.floor(Math.sqrt(limits.pairs) / size)));
    const ranges = { x_range: [this.axis(x).low, this.axis(x).high], y_range: [this.axis(y).low, this.axis(y).high] };
    for (const points of fine > COARSE_POINTS ? [COARSE_POINTS, fine] : [fine]) {
      const grid = await this.requestMap({ set, place: c, between: [a, b], model, points, x, y, ...ranges });
      if (grid === undefined) return;
      this.grid = grid;
      this.key = points === fine ? key : null;
      this.draw();
    }
  }

  // -- display ---------------------------------------------------------------------------------------------------

  fillSelects() {
    const { rows, map } = this.store.value;
    const fill = (role, options) => {
      const select = this.find(role);
      select.replaceChildren(...options.map(([value, text]) => make("option", { value }, text)));
      select.value = map[role];
    };
    for (const role of ["a", "b", "c"])
      fill(
        role,
        rows.map((row) => [row.id, row.name]),
      );
    for (const role of ["x", "y"])
      fill(
        role,
        this.numeric.map((column) => [column.name, column.title]),
      );
    this.find("model").value = map.model;
    this.find("among").value = map.among;
  }

  save() {
    const name = (role) => this.store.row(this.store.value.map[role])?.name;
    savePicture(this.find("picture"), `Preference for ${name("a")} over ${name("b")}, as ${name("c")} moves`, "map");
  }

  titleOf(name) {
    return titled(this.numeric.find((column) => column.name === name));
  }

  draw() {
    const { map, rows } = this.store.value;
    const { a, b, c } = map;
    if (!this.grid || !this.shares || rows.length < 3 || ![a, b, c].every((id) => this.store.row(id))) return;
    const names = Object.fromEntries(["a", "b", "c"].map((role) => [role, this.store.row(map[role]).name]));
    const effects = this.effectPositions();
    drawMap(this.find("picture"), {
      ...this.grid,
      middle: Number.isFinite(this.shares.withoutC) ? this.shares.withoutC : 0.5,
      axes: ["x", "y"].map((axis, k) => ({
        name: this.titleOf(map[axis]),
        scale: this.axis(map[axis]),
        better: this.directions()[k],
      })),
      points: ["a", "b", "c"].map((role) => ({
        role,
        name: names[role],
        position: this.position(map[role]),
        onMap: this.isOnMap(map[role]),
      })),
      effects,
      move: (position) => this.moveTo(position),
    });
    for (const effect of Object.keys(EFFECTS)) {
      this.find(effect).disabled = !effects[effect];
      this.find(effect).title = `${names.c} is ${EFFECTS[effect](names.a)}`;
    }
    this.describe(names, effects);
  }

  describe(names, effects) {
    const { withC, withoutC } = this.shares;
    const change = points(withC - withoutC);
    this.find("readout").replaceChildren(
      `With ${names.c} here, `,
      make("strong", {}, percent(withC)),
      ` of those who choose ${names.a} or ${names.b} choose ${names.a}. Without ${names.c}: `,
      make("strong", {}, percent(withoutC)),
      change ? `. Effect of ${names.c}: ${change} points.` : ".",
    );
    const { a, b } = this.store.value.map;
    const hasTradeOff = tradesOff(this.position(a), this.position(b), this.directions());
    const { x, y } = this.store.value.map;
    const ignored = [x, y].find((name) => this.better.get(name) === 0);
    const reason =
      ignored === undefined
        ? `There is no trade-off between ${names.a} and ${names.b} in these two features`
        : `A typical change in ${this.titleOf(ignored)} does not affect the prediction here`;
    const note = hasTradeOff
      ? `No effect in favour of ${names.a} can be shown within the range of the training data.`
      : `${reason}, so no effects are marked.`;
    this.find("note").textContent = Object.keys(effects).length ? "" : note;
  }
}
