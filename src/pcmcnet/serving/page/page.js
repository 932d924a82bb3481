// The page: sends changes to the server, and shows the results or errors.

import { drawBars, fullWidth } from "./bars.js";
import { breakable, copyText, debounce, isTyping, make, titled } from "./dom.js";
import { findProblem, isOutsideTraining, makeField } from "./fields.js";
import { Flow } from "./flow.js";
import { percent, sentence } from "./format.js";
import { PreferenceMap } from "./map.js";
import { byId, showNotice, showTokenForm } from "./notices.js";
import { Offer } from "./offer.js";
import { savePicture } from "./picture.js";
import { Predictions } from "./predictions.js";
import { Scenarios } from "./scenarios.js";
import { Table } from "./table.js";
import { Tables } from "./tables.js";

export class Page {
  constructor(store) {
    this.store = store;
    this.table = new Table(byId("table"), store, store.schema.limits?.alternatives ?? 500);
    this.fields = this.makeIndividual();
    this.map = new PreferenceMap(byId("map"), store, (error) => this.showError("map", error));
    this.flow = store.schema.has_rates
      ? new Flow(byId("flow"), store, (error) => this.showError("flow", error))
      : null;
    this.offer = new Offer(byId("offer"), store, (error) => this.showError("offer", error));
    this.scenarios = new Scenarios(byId("scenarios"), store, (error) => this.showError("scenarios", error));
    this.tables = new Tables(byId("table-dialog"), store);
    byId("map").hidden = !this.map.isPossible;
    byId("more").hidden = !this.map.isPossible && this.flow === null;
    byId("next-example").hidden = store.examples.length < 2;
    this.predictions = new Predictions(
      store,
      () => this.isReady(),
      (error) => this.showPredictions(error),
    );
    this.updatePicturesSoon = debounce(120, () => this.updatePictures());
    this.announce = debounce(900, () => this.announceChanges());
    this.makeLegend();
    this.showCaveats();
    this.connect();
    store.onChange((kind) => this.changed(kind));
    this.changed("all");
  }

  showCaveats() {
    const caveats = this.store.schema.caveats ?? [];
    byId("caveats").replaceChildren(...caveats.map((text) => make("li", {}, sentence(text))));
    byId("caveats").hidden = !caveats.length;
  }

  connect() {
    document.querySelector(".skip").addEventListener("click", (event) => {
      event.preventDefault(); // the address holds the state of the page
      byId(byId("work").hidden ? "market" : "alternatives").focus();
    });
    byId("add").addEventListener("click", () => this.table.add());
    byId("undo").addEventListener("click", () => this.store.undo());
    byId("redo").addEventListener("click", () => this.store.redo());
    document.addEventListener("keydown", (event) => this.onKey(event));
    byId("next-example").addEventListener("click", () => this.store.nextExample());
    byId("save-scenario").addEventListener("click", () => this.scenarios.add());
    byId("open-table").addEventListener("click", () => this.tables.open());
    byId("bars-png").addEventListener("click", () => this.saveBars());
    byId("reset").addEventListener("click", () => this.store.reset());
    byId("mark").addEventListener("click", () => this.mark());
    byId("sort").addEventListener("click", () => this.sort());
    byId("more").addEventListener("toggle", () => this.schedulePictures());
    byId("share").addEventListener("click", () => this.share());
    window.addEventListener("hashchange", () => {
      const isValid = this.store.readAddress();
      if (isValid === false) showNotice("This link is damaged or belongs to a model with different columns.");
      else if (isValid) this.store.notify("all");
    });
  }

  makeIndividual() {
    byId("who").hidden = this.store.individualColumns.length === 0;
    return this.store.individualColumns.map((column) => {
      const field = makeField(column, {
        label: () => column.title,
        span: () => this.store.span(column),
        get: () => this.store.value.individual[column.name],
        set: (value) => this.store.change("cell", ({ individual }) => (individual[column.name] = value), column.name),
      });
      byId("individual").append(
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

  makeLegend() {
    const { schema } = this.store;
    const names = [
      ["main", schema.class ?? "model"],
      ...(schema.has_baseline ? [["baseline", schema.baseline?.class ?? "baseline"]] : []),
    ];
    byId("key").replaceChildren(
      ...names.map(([kind, text]) => make("span", { class: kind }, make("i", { "aria-hidden": "true" }), text)),
    );
  }

  // -- changes ---------------------------------------------------------------------------------------------------

  changed(kind) {
    if (this.store.isFromLink && !this.isReady()) {
      const [[column, name, message]] = this.problems();
      this.leaveLink(`${column} of ${name}: ${message}.`);
      return;
    }
    if (kind === "rows" || kind === "all") this.table.build();
    else this.table.refresh();
    for (const field of this.fields)
      if (!field.element.contains(document.activeElement) || kind === "all") field.refresh();
    byId("undo").disabled = this.store.past.length === 0;
    byId("redo").disabled = this.store.future.length === 0;
    byId("add").disabled = this.store.value.rows.length >= this.table.limit;
    this.table.showProbabilities(this.predictions.main, this.predictions.baseline);
    this.showStatus();
    if (kind === "map") this.schedulePictures();
    else if (kind === "scenarios") this.scenarios.update(this.predictions.main);
    else if (kind !== "mark") this.predictions.update();
    this.map.draw();
    this.flow?.rename();
    this.offer.changed(kind);
  }

  /** Whether all values are valid, so that a request can be sent. */
  isReady() {
    return this.problems().length === 0;
  }

  /** [[column, row name, message]] of all invalid values. */
  problems() {
    const { individual, rows } = this.store.value;
    const check = (columns, values, name) =>
      columns
        .map((column) => [column.title, name, findProblem(column, values[column.name])])
        .filter(([, , message]) => message);
    const { individualColumns, features } = this.store;
    return [
      ...check(individualColumns, individual, "the individual"),
      ...rows.flatMap((row) => check(features, row.values, row.name)),
    ];
  }

  showPredictions(error) {
    if (error?.status === 422 && this.store.isFromLink) {
      this.leaveLink(this.withNames(error.message));
      return;
    }
    this.error = error;
    const { value } = this.store;
    const { main, baseline } = this.predictions;
    if (!error && main && value.rows.every((row) => row.mark === null)) {
      for (const row of value.rows) row.mark = main.get(row.id) ?? null; // the first result is the reference
      this.store.save();
    }
    this.table.showProbabilities(main, baseline);
    this.showStatus();
    if (error?.status === 401) showTokenForm();
    if (error) return;
    this.announce();
    this.scenarios.update(main);
    this.schedulePictures();
  }

  /** Replace a choice set that came with the link, and that the model cannot predict, by the example. */
  leaveLink(reason) {
    showNotice(`The choice set of this link cannot be predicted, so the example is shown instead. ${reason}`);
    this.store.reset();
  }

  /** Update the pictures soon, if they are shown. */
  schedulePictures() {
    if (!byId("more").open) return;
    byId("pictures").setAttribute("aria-busy", "true");
    this.updatePicturesSoon();
  }

  async updatePictures() {
    const update = (this.lastUpdate = {});
    if (this.isReady() && this.predictions.main) await Promise.all([this.flow?.update(), this.updateMap()]);
    if (update === this.lastUpdate) byId("pictures").setAttribute("aria-busy", "false");
  }

  async updateMap() {
    if (this.map.isPossible && !this.map.order) {
      const { rows } = this.store.value;
      const p = rows.map((row) => this.predictions.main.get(row.id) ?? 0);
      const favourites = p.map((_, k) => k).sort((one, other) => p[other] - p[one]);
      await this.map.rankFeatures(favourites.slice(0, 3)).catch(() => this.map.useSchemaOrder());
    }
    await this.map.update(this.predictions.main);
  }

  // -- messages --------------------------------------------------------------------------------------------------

  /** The line below the table: an error, or else the number of alternatives and a warning. */
  showStatus() {
    const problems = this.problems();
    const status = byId("status");
    byId("work").classList.toggle("stale", problems.length > 0 || Boolean(this.error));
    status.classList.toggle("bad", problems.length > 0 || Boolean(this.error));
    if (problems.length) {
      const [column, name, message] = problems[0];
      const more = problems.length > 1 ? ` (and ${problems.length - 1} more)` : "";
      status.textContent = `${column} of ${name}: ${message}${more}. The bars show the previous result.`;
    } else if (this.error) {
      const retry = make("button", { type: "button", on: { click: () => this.predictions.update() } }, "Try again");
      status.replaceChildren(
        make("span", {}, this.withNames(this.error.message)),
        " The bars show the previous result. ",
        retry,
      );
    } else {
      const { baselineError } = this.predictions;
      const reason = baselineError && `The baseline cannot predict this choice set: ${this.withNames(baselineError.message)}`;
      status.replaceChildren(this.summary(), ...(reason ? [" ", make("span", { class: "caution" }, reason)] : []));
    }
  }

  /** Replace the numbers of alternatives in a message of the server by their names. */
  withNames(message) {
    const { rows } = this.store.value;
    return message
      .replace(/(?:set \d+, )?alternative (\d+)/g, (_, k) => rows[k]?.name ?? `alternative ${k}`)
      .replace(/set \d+, individual/, "the individual");
  }

  summary() {
    const { individual, rows } = this.store.value;
    const { individualColumns, features } = this.store;
    const count = (columns, values) =>
      columns.filter((column) => isOutsideTraining(column, values[column.name])).length;
    const ofRows = rows.reduce((sum, row) => sum + count(features, row.values), 0);
    const outside = count(individualColumns, individual) + ofRows;
    const size = `${rows.length} alternative${rows.length === 1 ? "" : "s"}.`;
    if (!outside) return size;
    const values = outside === 1 ? "One value is" : `${outside} values are`;
    return `${size} ${values} outside the training data: treat the prediction as a guess.`;
  }

  /** Announce the largest changes to screen readers. */
  announceChanges() {
    const { main } = this.predictions;
    const { rows } = this.store.value;
    const before = this.announced ?? new Map();
    const changed = rows
      .filter((row) => percent(main?.get(row.id) ?? 0) !== percent(before.get(row.id) ?? 0))
      .sort(
        (one, other) =>
          Math.abs((main.get(other.id) ?? 0) - (before.get(other.id) ?? 0)) -
          Math.abs((main.get(one.id) ?? 0) - (before.get(one.id) ?? 0)),
      )
      .slice(0, 3);
    this.announced = main;
    if (!changed.length) return;
    const texts = changed.map((row) => {
      const was = before.has(row.id) ? `, was ${percent(before.get(row.id))}` : "";
      return `${row.name} ${percent(main.get(row.id) ?? 0)}${was}`;
    });
    byId("live").textContent = `Probabilities: ${texts.join("; ")}.`;
  }

  showError(where, error) {
    document.querySelector(`[data-error=${where}]`).textContent = error ? this.withNames(error.message) : "";
  }

  // -- buttons ---------------------------------------------------------------------------------------------------

  mark() {
    this.store.change("mark", ({ rows }) => {
      for (const row of rows) row.mark = this.predictions.main?.get(row.id) ?? null;
    });
  }

  sort() {
    const p = (row) => this.predictions.main?.get(row.id) ?? 0;
    this.store.change("rows", ({ rows }) => rows.sort((one, other) => p(other) - p(one)));
  }

  /** Ctrl+Z undoes; Ctrl+Shift+Z and Ctrl+Y redo. In a text field the browser handles these keys. */
  onKey(event) {
    if (byId("work").hidden) return; // the other view is shown
    const key = event.key.toLowerCase();
    if (!(event.ctrlKey || event.metaKey) || !["z", "y"].includes(key) || isTyping(event)) return;
    event.preventDefault();
    if (key === "y" || event.shiftKey) this.store.redo();
    else this.store.undo();
  }

  /** Download a picture of the bars. On the page they are part of the table, so they are drawn again. */
  async saveBars() {
    const { main, baseline } = this.predictions;
    if (!main) return;
    const { schema, value } = this.store;
    const shares = ({ id, name }) => ({ name, p: main.get(id) ?? 0, q: baseline?.get(id) ?? null });
    const rows = value.rows.map(shares);
    const full = fullWidth(rows.flatMap(({ p, q }) => [p, q ?? 0]));
    const names = [schema.class, ...(baseline ? [schema.baseline.class] : [])];
    const container = make("div", { class: "off-screen" }, drawBars(rows, full, names));
    document.body.append(container);
    await savePicture(container, `Probability of each alternative, ${schema.title}`, "probabilities");
    container.remove();
  }

  /** Copy the link to the last state that the model has predicted. */
  async share() {
    if (this.store.isPredicted) this.store.writeAddress();
    else showNotice("The link leads to the last choice set that the model could predict, without the latest changes.");
    if (!(await copyText(location.href))) {
      showNotice("The link could not be copied. Copy it from the address bar of the browser.");
      return;
    }
    byId("share").textContent = "Copied";
    setTimeout(() => (byId("share").textContent = "Copy link"), 1500);
  }
}
