// The page at work: changes go to the server, answers to the table and the pictures, troubles to where they belong.

import { Answers } from "./answers.js";
import { drawBars, fullWidth } from "./bars.js";
import { breakable, debounce, make, titled } from "./dom.js";
import { isBeyond, makeField, problem } from "./fields.js";
import { Flow } from "./flow.js";
import { percent } from "./format.js";
import { PreferenceMap } from "./map.js";
import { askToken, find, notice } from "./notices.js";
import { Offer } from "./offer.js";
import { savePicture } from "./picture.js";
import { Scenarios } from "./scenarios.js";
import { Table } from "./table.js";
import { Tables } from "./tables.js";

export class Page {
  constructor(store) {
    this.store = store;
    this.table = new Table(find("table"), store, store.schema.limits?.alternatives ?? 500);
    this.fields = this.makeIndividual();
    this.map = new PreferenceMap(find("map"), store, (error) => this.showTrouble("map", error));
    this.flow = store.schema.has_rates
      ? new Flow(find("flow"), store, (error) => this.showTrouble("flow", error))
      : null;
    this.offer = new Offer(find("offer"), store, (error) => this.showTrouble("offer", error));
    this.scenarios = new Scenarios(find("scenarios"), store, (error) => this.showTrouble("scenarios", error));
    this.tables = new Tables(find("table-dialog"), store);
    find("map").hidden = !this.map.possible;
    find("another").hidden = store.examples.length < 2;
    this.answers = new Answers(
      store,
      () => this.ready(),
      (error) => this.showAnswers(error),
    );
    this.soon = debounce(120, () => this.updatePictures());
    this.announce = debounce(900, () => this.say());
    this.makeKey();
    this.connect();
    store.onChange((kind) => this.changed(kind));
    this.changed("all");
  }

  connect() {
    document.querySelector(".skip").addEventListener("click", (event) => {
      event.preventDefault(); // the address is taken by the state
      find("alternatives").focus();
    });
    find("add").addEventListener("click", () => this.table.add());
    find("undo").addEventListener("click", () => this.store.undo());
    find("redo").addEventListener("click", () => this.store.redo());
    document.addEventListener("keydown", (event) => this.travel(event));
    find("another").addEventListener("click", () => this.store.another());
    find("keep").addEventListener("click", () => this.scenarios.keep());
    find("open-table").addEventListener("click", () => this.tables.ask());
    find("bars-png").addEventListener("click", () => this.saveBars());
    find("reset").addEventListener("click", () => this.store.reset());
    find("mark").addEventListener("click", () => this.mark());
    find("sort").addEventListener("click", () => this.sort());
    find("share").addEventListener("click", () => this.share());
    window.addEventListener("hashchange", () => {
      const read = this.store.readAddress();
      if (read === false) notice("This address was made for a model with other columns, or is damaged.");
      else if (read) this.store.tell("all");
    });
  }

  makeIndividual() {
    find("who").hidden = this.store.who.length === 0;
    return this.store.who.map((column) => {
      const field = makeField(column, {
        label: () => column.title,
        span: () => this.store.span(column),
        get: () => this.store.value.individual[column.name],
        set: (value) => this.store.change("cell", ({ individual }) => (individual[column.name] = value), column.name),
      });
      find("individual").append(
        make(
          "div",
          { class: `of-individual ${column.field}` },
          make("span", { class: "caption", "aria-hidden": "true" }, breakable(titled(column))),
          field.element,
        ),
      );
      return field;
    });
  }

  makeKey() {
    const { schema } = this.store;
    const names = [
      ["main", schema.class ?? "model"],
      ...(schema.has_baseline ? [["baseline", schema.baseline?.class ?? "baseline"]] : []),
    ];
    find("key").replaceChildren(
      ...names.map(([kind, text]) => make("span", { class: kind }, make("i", { "aria-hidden": "true" }), text)),
    );
  }

  // -- changes ---------------------------------------------------------------------------------------------------

  changed(kind) {
    if (kind === "rows" || kind === "all") this.table.build();
    else this.table.refresh();
    for (const field of this.fields)
      if (!field.element.contains(document.activeElement) || kind === "all") field.refresh();
    find("undo").disabled = this.store.past.length === 0;
    find("redo").disabled = this.store.future.length === 0;
    find("add").disabled = this.store.value.rows.length >= this.table.limit;
    this.table.showProbabilities(this.answers.main, this.answers.baseline);
    this.showStatus();
    if (kind === "map") this.pictures();
    else if (kind === "scenarios") this.scenarios.update(this.answers.main);
    else if (kind !== "mark") this.answers.ask();
    this.map.draw();
    this.flow?.rename();
    this.offer.changed(kind);
  }

  /** Whether the server can be asked: what cannot be read is shown where it stands. */
  ready() {
    return this.problems().length === 0;
  }

  /** [[column, where, words]] of all values that are no numbers. */
  problems() {
    const { individual, rows } = this.store.value;
    const look = (columns, values, where) =>
      columns
        .map((column) => [column.title, where, problem(column, values[column.name])])
        .filter(([, , words]) => words);
    const { who, features } = this.store;
    return [...look(who, individual, "the individual"), ...rows.flatMap((row) => look(features, row.values, row.name))];
  }

  showAnswers(error) {
    this.error = error;
    const { value } = this.store;
    const { main, baseline } = this.answers;
    if (!error && main && value.rows.every((row) => row.mark === null)) {
      for (const row of value.rows) row.mark = main.get(row.id) ?? null; // changes are counted from the first answer
      this.store.save();
    }
    this.table.showProbabilities(main, baseline);
    this.showStatus();
    if (error?.status === 401) askToken();
    if (error) return;
    this.announce();
    this.scenarios.update(main);
    this.pictures();
  }

  pictures() {
    find("pictures").setAttribute("aria-busy", "true");
    this.soon();
  }

  async updatePictures() {
    const turn = (this.turn = {});
    if (this.ready() && this.answers.main) await Promise.all([this.flow?.update(), this.updateMap()]);
    if (turn === this.turn) find("pictures").setAttribute("aria-busy", "false");
  }

  async updateMap() {
    if (this.map.possible && !this.map.order) {
      const { rows } = this.store.value;
      const p = rows.map((row) => this.answers.main.get(row.id) ?? 0);
      const favourites = p.map((_, k) => k).sort((one, other) => p[other] - p[one]);
      await this.map.learn(favourites.slice(0, 3)).catch(() => this.map.learnNothing());
    }
    await this.map.update(this.answers.main);
  }

  // -- words -----------------------------------------------------------------------------------------------------

  /** One line under the table: what is wrong, or what to bear in mind, or how many there are. */
  showStatus() {
    const problems = this.problems();
    const status = find("status");
    find("work").classList.toggle("stale", problems.length > 0 || Boolean(this.error));
    status.classList.toggle("bad", problems.length > 0 || Boolean(this.error));
    if (problems.length) {
      const [column, where, words] = problems[0];
      const more = problems.length > 1 ? ` (and ${problems.length - 1} more)` : "";
      status.textContent = `${column} of ${where}: ${words}${more}. The bars show the last answer.`;
    } else if (this.error) {
      const again = make("button", { type: "button", on: { click: () => this.answers.ask() } }, "Try again");
      status.replaceChildren(
        make("span", {}, this.inNames(this.error.message)),
        " The bars show the last answer. ",
        again,
      );
    } else {
      status.textContent = this.remark();
    }
  }

  /** The server counts alternatives from 0; the page has names for them. */
  inNames(message) {
    const { rows } = this.store.value;
    return message
      .replace(/(?:set \d+, )?alternative (\d+)/g, (_, k) => rows[k]?.name ?? `alternative ${k}`)
      .replace(/set \d+, individual/, "the individual");
  }

  remark() {
    const { individual, rows } = this.store.value;
    const { who, features } = this.store;
    const count = (columns, values) => columns.filter((column) => isBeyond(column, values[column.name])).length;
    const beyond = count(who, individual) + rows.reduce((sum, row) => sum + count(features, row.values), 0);
    const size = `${rows.length} alternative${rows.length === 1 ? "" : "s"}.`;
    if (!beyond) return size;
    const what = beyond === 1 ? "One value lies" : `${beyond} values lie`;
    return `${size} ${what} outside what the model saw in training: its answer there is a guess.`;
  }

  /** Tell those who listen what changed most. */
  say() {
    const { main } = this.answers;
    const { rows } = this.store.value;
    const before = this.said ?? new Map();
    const moved = rows
      .filter((row) => percent(main?.get(row.id) ?? 0) !== percent(before.get(row.id) ?? 0))
      .sort(
        (one, other) =>
          Math.abs((main.get(other.id) ?? 0) - (before.get(other.id) ?? 0)) -
          Math.abs((main.get(one.id) ?? 0) - (before.get(one.id) ?? 0)),
      )
      .slice(0, 3);
    this.said = main;
    if (!moved.length) return;
    const words = moved.map((row) => {
      const was = before.has(row.id) ? `, was ${percent(before.get(row.id))}` : "";
      return `${row.name} ${percent(main.get(row.id) ?? 0)}${was}`;
    });
    find("live").textContent = `Probabilities: ${words.join("; ")}.`;
  }

  showTrouble(where, error) {
    document.querySelector(`[data-trouble=${where}]`).textContent = error ? this.inNames(error.message) : "";
  }

  // -- buttons ---------------------------------------------------------------------------------------------------

  mark() {
    this.store.change("mark", ({ rows }) => {
      for (const row of rows) row.mark = this.answers.main?.get(row.id) ?? null;
    });
  }

  sort() {
    const p = (row) => this.answers.main?.get(row.id) ?? 0;
    this.store.change("rows", ({ rows }) => rows.sort((one, other) => p(other) - p(one)));
  }

  /** Control and Z goes back, with shift or Y forward; in a field it is the browser's. */
  travel(event) {
    const key = event.key.toLowerCase();
    const writing = event.target.matches("input:not([type=range], [type=checkbox]), textarea");
    if (!(event.ctrlKey || event.metaKey) || !["z", "y"].includes(key) || writing) return;
    event.preventDefault();
    if (key === "y" || event.shiftKey) this.store.redo();
    else this.store.undo();
  }

  /** A picture of the bars, which on the page are part of the table. */
  async saveBars() {
    const { main, baseline } = this.answers;
    if (!main) return;
    const { schema, value } = this.store;
    const shares = ({ id, name }) => ({ name, p: main.get(id) ?? 0, q: baseline?.get(id) ?? null });
    const rows = value.rows.map(shares);
    const full = fullWidth(rows.flatMap(({ p, q }) => [p, q ?? 0]));
    const names = [schema.class, ...(baseline ? [schema.baseline.class] : [])];
    const room = make("div", { class: "off-screen" }, drawBars(rows, full, names));
    document.body.append(room);
    await savePicture(room, `Probability of each alternative, ${schema.title}`, "probabilities");
    room.remove();
  }

  async share() {
    this.store.writeAddress();
    try {
      await navigator.clipboard.writeText(location.href);
      find("share").textContent = "Copied";
      setTimeout(() => (find("share").textContent = "Copy link"), 1500);
    } catch {
      notice("This browser does not let the page copy. The address above is the link.");
    }
  }
}
