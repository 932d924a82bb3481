// The preference map: how many of those who take a or b take a, for every place of a third alternative c in two
// features. Lighter is more for a, as in figure 2 of the paper. c can be moved on the map, by pointer or arrow keys.

import { ask, latest } from "./api.js";
import { make, titled } from "./dom.js";
import { EFFECTS, effectPlaces, inPairs, tradesOff } from "./effects.js";
import { percent, points } from "./format.js";
import { drawMap } from "./mapdraw.js";
import { savePicture } from "./picture.js";
import { makeAxis, makeScale } from "./scale.js";

const COARSE = 9; // points along an axis of the first, quick answer
const ROOM = 1.25; // around a and b, in their distance: enough for a third one beyond a that makes it the middle

export class PreferenceMap {
  constructor(root, store, report) {
    this.root = root;
    this.store = store;
    this.report = report;
    this.question = latest("v1/map");
    this.here = latest("v1/probabilities");
    this.scales = new Map(store.features.map((column) => [column.name, makeScale(column)]));
    this.numeric = store.features.filter((column) => this.scales.get(column.name));
    this.better = new Map(); // feature -> 1 or -1, as the model sees it; 0 where it makes no difference
    this.key = null; // of the map shown
    this.found = null;
    this.find = (name) => root.querySelector(`[data-map=${name}]`);
    this.connect();
  }

  get possible() {
    return this.numeric.length >= 2;
  }

  connect() {
    for (const role of ["a", "b", "c", "x", "y", "model", "among"]) {
      this.find(role).addEventListener("change", (event) => this.choose(role, event.target.value));
    }
    this.find("zoom").addEventListener("change", (event) => {
      this.store.change("map", ({ map }) => (map.zoom = event.target.checked));
    });
    this.find("png").addEventListener("click", () => this.save());
    this.find("swap").addEventListener("click", () => {
      this.store.change("map", ({ map }) => ([map.a, map.b] = [map.b, map.a]));
    });
    for (const name of Object.keys(EFFECTS)) {
      this.find(name).addEventListener("click", () => this.moveTo(this.places()[name]));
    }
    new ResizeObserver(() => this.draw()).observe(this.find("picture"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  /** Two roles never stand for the same: the one that had the new value takes the old one. */
  choose(role, text) {
    const value = ["a", "b", "c"].includes(role) ? Number(text) : text;
    const family = [["a", "b", "c"], ["x", "y"], ["model"], ["among"]].find((roles) => roles.includes(role));
    this.store.change("map", ({ map }) => {
      for (const other of family) if (other !== role && map[other] === value) map[other] = map[role];
      map[role] = value;
    });
  }

  // -- what the map is about -------------------------------------------------------------------------------------

  /**
   * Ask the model which features count and which way is better: each of the favourite alternatives, three at most, moves
   * from the first to the third quartile of each. Quartiles are those of the set at hand; where its values are all alike,
   * those of the training table tell the direction, and the feature comes last. Sets the directions, and the order in
   * which features are offered.
   */
  async learn(favourites) {
    const set = this.store.choiceSet();
    const { limits } = this.store.schema;
    const many = 2 * this.numeric.length * favourites.length;
    if (many > limits.sets || many * set.alternatives.length ** 2 > limits.pairs) {
      this.learnNothing();
      return;
    }
    const moved = (favourite, column, u) => ({
      individual: set.individual,
      alternatives: set.alternatives.map((values, k) =>
        k === favourite ? { ...values, [column.name]: ends.get(column.name)[u] } : values,
      ),
    });
    const ends = new Map(this.numeric.map((column) => [column.name, this.quartiles(column.name)]));
    const asked = this.numeric.flatMap((column) => favourites.map((favourite) => [column, favourite]));
    const sets = asked.flatMap(([column, favourite]) => [0, 1].map((u) => moved(favourite, column, u)));
    const answer = await ask("v1/probabilities", { sets, model: "main" });
    const odds = (k) => {
      const p = answer.sets[k].probabilities[asked[k >> 1][1]];
      const within = Math.min(1 - 1e-9, Math.max(1e-9, p));
      return Math.log(within / (1 - within));
    };
    const changes = asked.map((_, k) => odds(2 * k + 1) - odds(2 * k));
    const gains = this.numeric.map((column, j) => {
      const own = changes.slice(j * favourites.length, (j + 1) * favourites.length);
      return [column.name, own.reduce((sum, change) => sum + change, 0) / own.length];
    });
    for (const [name, gain] of gains) this.better.set(name, Math.abs(gain) < 1e-9 ? 0 : Math.sign(gain));
    const size = ([name, gain]) => Math.abs(gain) - (ends.get(name)[2] ? 0 : 1e6);
    this.order = gains.sort((one, other) => size(other) - size(one)).map(([name]) => name);
  }

  /** First and third quartile of a feature in the set, or of the training table; and whether it varies in the set. */
  quartiles(name) {
    const values = this.store.value.rows.map((row) => this.number(row.id, name)).sort((one, other) => one - other);
    const at = (u) => values[Math.round(u * (values.length - 1))];
    const scale = this.scales.get(name);
    if (at(0.25) < at(0.75)) return [at(0.25), at(0.75), true];
    return at(0) < at(1) ? [at(0), at(1), true] : [scale.raw(0.25), scale.raw(0.75), false];
  }

  /** Where the model cannot say, features are offered as they stand, and no effects are marked. */
  learnNothing() {
    this.order = this.numeric.map((column) => column.name);
  }

  /** Fill in what the person has not chosen: the two features that count most, favourites that trade off. */
  fill(probabilities) {
    const { map, rows } = this.store.value;
    const names = this.order;
    const p = (id) => probabilities?.get(id) ?? 0;
    const free = rows.map((row) => row.id).sort((one, other) => p(other) - p(one));
    const open = { axes: map.x === null && map.y === null, ends: map.a === null && map.b === null };
    const axes = open.axes ? [names.slice(0, 2)] : [[map.x, map.y]];
    const ends = open.ends ? inPairs(free.slice(0, 8)) : [[map.a, map.b]];
    const options = ends
      .flatMap(([a, b], j) => axes.map(([x, y], i) => ({ option: { a, b, x, y }, late: i + j })))
      .sort((one, other) => one.late - other.late)
      .map(({ option }) => option);
    const usable = options.filter(
      (option) => Object.values(option).every((value) => value !== null) && this.contrast(option),
    );
    const apart = ({ a, b, x, y }) => [x, y].some((name) => this.number(a, name) !== this.number(b, name));
    const best = usable.find((option) => this.marks(option) === 3) ?? usable[0] ?? options.find(apart) ?? options[0];
    Object.assign(map, best);
    const place = (id) => rows.findIndex((row) => row.id === id);
    if (open.ends && place(map.a) > place(map.b)) [map.a, map.b] = [map.b, map.a];
    map.x ??= names.find((name) => name !== map.y);
    map.y ??= names.find((name) => name !== map.x);
    const left = () => free.filter((id) => ![map.a, map.b, map.c].includes(id));
    for (const role of ["a", "b"]) map[role] ??= left()[0] ?? null;
    map.c ??= left().find((id) => this.isOnMap(id)) ?? left()[0] ?? null;
  }

  /** Whether two alternatives trade off in two features, clearly so among those of the training table. */
  contrast({ a, b, x, y }) {
    const rank = (id) => [x, y].map((name) => this.scales.get(name).place(this.number(id, name)));
    return tradesOff(rank(a), rank(b), this.sides({ x, y }), 0.04);
  }

  /** How many of the effects would fit on a map. */
  marks(option) {
    return Object.keys(this.places(option)).length;
  }

  sides({ x, y } = this.store.value.map) {
    return [this.better.get(x) ?? 0, this.better.get(y) ?? 0];
  }

  number(id, name) {
    const value = this.store.row(id)?.values[name];
    return typeof value === "number" ? value : this.scales.get(name).raw(0.5);
  }

  /** The axis of a feature: a and b with room around them, within the range seen in training. */
  axis(name, { a, b } = this.store.value.map) {
    const scale = this.scales.get(name);
    const both = [this.number(a, name), this.number(b, name)];
    const usual = Math.max((scale.raw(0.75) - scale.raw(0.25)) / 2, (scale.max - scale.min) / 100);
    const room = ROOM * Math.max(Math.abs(both[0] - both[1]), usual);
    const low = Math.max(Math.min(scale.min, ...both), Math.min(...both) - room);
    const high = Math.min(Math.max(scale.max, ...both), Math.max(...both) + room);
    return scale.whole ? makeAxis(Math.floor(low), Math.ceil(high), true) : makeAxis(low, high, false);
  }

  /** The place of an alternative on the map, from (0, 0) to (1, 1). */
  at(id, map = this.store.value.map) {
    return [map.x, map.y].map((name) => this.axis(name, map).place(this.number(id, name)));
  }

  isOnMap(id) {
    const { x, y } = this.store.value.map;
    return [x, y].every((name) => this.axis(name).holds(this.number(id, name)));
  }

  places(map = this.store.value.map) {
    return effectPlaces(this.at(map.a, map), this.at(map.b, map), this.sides(map));
  }

  moveTo(place) {
    const { x, y, c } = this.store.value.map;
    if (!place) return;
    this.store.change(
      "cell",
      () => {
        const { values } = this.store.row(c);
        [x, y].forEach((name, k) => (values[name] = this.axis(name).value(Math.min(1, Math.max(0, place[k])))));
      },
      `map ${c}`,
    );
  }

  // -- ask -------------------------------------------------------------------------------------------------------

  /** Bring the map up to date; what did not change is not asked again. */
  async update(probabilities) {
    if (!this.possible) return;
    const { rows, map } = this.store.value;
    this.root.classList.toggle("few", rows.length < 3);
    if (rows.length < 3) return;
    this.fill(probabilities);
    this.store.save();
    this.fillSelects();
    const company = map.among === "all" ? rows : rows.filter((row) => [map.a, map.b, map.c].includes(row.id));
    const [a, b, c] = [map.a, map.b, map.c].map((id) => company.findIndex((row) => row.id === id));
    const set = { ...this.store.choiceSet(), alternatives: company.map((row) => ({ ...row.values })) };
    const fixed = set.alternatives.map((values, k) => (k === c ? { ...values, [map.x]: 0, [map.y]: 0 } : values));
    const key = JSON.stringify([set.individual, fixed, a, b, c, map.x, map.y, map.model]);
    try {
      await this.askHere(set, { a, b, c });
      this.draw();
      if (key !== this.key) await this.askMap(key, set, { a, b, c });
      this.report(null);
    } catch (error) {
      this.report(error);
    }
  }

  /** Ask for the share of a with c where it is, and without c. */
  async askHere(set, { a, b, c }) {
    const others = { ...set, alternatives: set.alternatives.filter((_, k) => k !== c) };
    const answer = await this.here({ sets: [set, others], model: this.store.value.map.model });
    if (answer === undefined) return;
    const [p, q] = answer.sets.map(({ probabilities }) => probabilities);
    const [one, other] = [a - (a > c), b - (b > c)];
    this.shares = { now: p[a] / (p[a] + p[b]), alone: q[one] / (q[one] + q[other]) };
  }

  async askMap(key, set, { a, b, c }) {
    const { x, y, model } = this.store.value.map;
    const { limits } = this.store.schema;
    const size = set.alternatives.length;
    const wanted = size <= 10 ? 33 : size <= 25 ? 25 : 17;
    const fine = Math.max(2, Math.min(wanted, limits.points, Math.floor(Math.sqrt(limits.pairs) / size)));
    const ranges = { x_range: [this.axis(x).low, this.axis(x).high], y_range: [this.axis(y).low, this.axis(y).high] };
    for (const points of fine > COARSE ? [COARSE, fine] : [fine]) {
      const grid = await this.question({ set, place: c, between: [a, b], model, points, x, y, ...ranges });
      if (grid === undefined) return;
      this.found = grid;
      this.key = points === fine ? key : null;
      this.draw();
    }
  }

  // -- show ------------------------------------------------------------------------------------------------------

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
    this.find("zoom").checked = map.zoom;
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
    if (!this.found || !this.shares || rows.length < 3 || ![a, b, c].every((id) => this.store.row(id))) return;
    const names = Object.fromEntries(["a", "b", "c"].map((role) => [role, this.store.row(map[role]).name]));
    const places = this.places();
    drawMap(this.find("picture"), {
      ...this.found,
      zoom: map.zoom,
      axes: ["x", "y"].map((axis, k) => ({ name: this.titleOf(map[axis]), scale: this.axis(map[axis]), better: this.sides()[k] })),
      points: ["a", "b", "c"].map((role) => ({
        role,
        name: names[role],
        at: this.at(map[role]),
        onMap: this.isOnMap(map[role]),
      })),
      effects: places,
      move: (place) => this.moveTo(place),
    });
    for (const effect of Object.keys(EFFECTS)) {
      this.find(effect).disabled = !places[effect];
      this.find(effect).title = `${names.c} is ${EFFECTS[effect](names.a)}`;
    }
    this.say(names, places);
  }

  say(names, places) {
    const { now, alone } = this.shares;
    const change = points(now - alone);
    this.find("readout").replaceChildren(
      `With ${names.c} here, `,
      make("strong", {}, percent(now)),
      ` of those who choose ${names.a} or ${names.b} choose ${names.a}; without ${names.c}, `,
      make("strong", {}, percent(alone)),
      change ? `: ${change} points for ${names.a}.` : ".",
    );
    const { a, b } = this.store.value.map;
    const trade = tradesOff(this.at(a), this.at(b), this.sides());
    const { x, y } = this.store.value.map;
    const idle = [x, y].find((name) => this.better.get(name) === 0);
    const apart =
      idle === undefined
        ? `${names.a} and ${names.b} do not trade off in these two features`
        : `Whether ${this.titleOf(idle)} is at its first or third quartile makes no difference to the model here`;
    const none = trade
      ? `No effect with respect to ${names.a} fits into the range seen in training.`
      : `${apart}, so no effects are marked.`;
    this.find("note").textContent = Object.keys(places).length ? "" : none;
  }
}
