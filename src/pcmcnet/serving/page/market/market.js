// The market view: shares, volumes, revenue and margin over many choice sets, today and after changes.

import { copyText, isTyping, make, titled } from "../dom.js";
import { download, writeCsv } from "../csv.js";
import { sentence } from "../format.js";
import { sendRequest } from "../api.js";
import { byId, showTokenForm } from "../notices.js";
import { Best } from "./best.js";
import { ChangeForm, drawChanges } from "./changeform.js";
import { Comparison } from "./comparison.js";
import { Curves } from "./curves.js";
import { groupCells, scenarioCommand } from "./exports.js";
import { keepFocus, markOverflow } from "./focus.js";
import { refusal } from "./language.js";
import { groupingBy } from "./products.js";
import { WITHOUT_OUTSIDE, drawGroups, drawScale, drawTiles, readable, reliability, totalOf } from "./results.js";
import { fill } from "./select.js";
import { MarketSettings } from "./settings.js";
import { Simulation } from "./simulation.js";

const MAX_SEGMENTS = 20;

export class Market {
  /** `openSet` shows one choice set on the other view. */
  constructor(root, store, openSet) {
    this.root = root;
    this.store = store;
    this.openSet = openSet;
    this.settings = new MarketSettings(store);
    this.simulation = new Simulation(store, this.settings);
    this.order = null; // of the table of groups: {key, part, isAscending}, or null for the order of the server
    this.form = new ChangeForm(this.part("form"), this.settings, (change) => this.addChange(change));
    const report = (name) => (error) => this.showError(name, error);
    this.comparison = new Comparison(this.part("comparison"), this.settings);
    this.curves = new Curves(this.part("curves"), this.settings, this.simulation, report("curves"));
    this.best = new Best(this.part("best"), this.settings, this.simulation, {
      report: report("best"),
      intervals: () => this.figures.intervals,
    });
    byId("undo-market").addEventListener("click", () => this.settings.undo());
    byId("redo-market").addEventListener("click", () => this.settings.redo());
    document.addEventListener("keydown", (event) => this.onKey(event));
    this.connect();
    this.settings.onChange(() => this.update());
    this.update();
  }

  part(name) {
    return this.root.querySelector(`[data-market=${name}]`);
  }

  reload() {
    this.settings.reload();
  }

  connect() {
    const { settings } = this;
    const onChange = (name, edit) =>
      this.part(name).addEventListener("change", ({ target }) => settings.change((value) => edit(value, target.value)));
    onChange("source", (value, source) => (value.source = source));
    onChange("by", (value, by) => Object.assign(value, { by: by || null, limits: "" }));
    onChange("revenue", (value, name) => (value.revenue = name || null));
    onChange("unit-cost", (value, name) => (value.unitCost = name || null));
    onChange("model", (value, model) => (value.model = model));
    onChange("rule", (value, rule) => (value.rule = rule || null));
    onChange("limits", (value, limits) => (value.limits = limits.trim()));
    onChange("measure", (value, measure) => (value.measure = measure));
    const onClick = (name, act) => this.part(name).addEventListener("click", act);
    onClick("open", () => this.part("file").click());
    onClick("print", () => window.print());
    onClick("clear", () => settings.change((value) => (value.changes = [])));
    onClick("save", () => settings.addScenario());
    onClick("csv", () => download(writeCsv(groupCells(this.figures, settings)), "market.csv"));
    onClick("comparison-csv", () => download(writeCsv(this.comparison.csv()), "market-scenarios.csv"));
    onClick("command", () => this.copyCommand());
    onClick("retry", () => this.update());
    const tables = [...this.root.querySelectorAll(".scroll")];
    const sizes = new ResizeObserver(() => tables.forEach(markOverflow));
    for (const table of tables) {
      sizes.observe(table);
      table.addEventListener("scroll", () => markOverflow(table));
    }
    onClick("open-set", () => this.showSet());
    this.part("file").addEventListener("change", (event) => this.readFile(event.target.files[0]));
    this.part("own-change").addEventListener("submit", (event) => {
      event.preventDefault();
      this.addOwnChange();
    });
  }

  async readFile(file) {
    if (!file) return;
    const text = await file.text();
    this.part("file").value = ""; // otherwise choosing the same file again has no effect
    this.openText(file.name, text);
  }

  /** Show the market of a table. A table that the server would refuse is not sent. */
  openText(name, text) {
    const most = this.store.schema.limits.market_bytes;
    const size = new Blob([text]).size;
    this.showError("file", null);
    if (size < most) {
      this.settings.openFile(name, text);
      return;
    }
    const [has, accepts] = [size, most].map((bytes) => (bytes / 1e6).toFixed(1));
    const remedy = "Start it with a larger --max-market-bytes, or with --table.";
    this.showError("file", { message: `${name} has ${has} MB, and this server accepts ${accepts} MB. ${remedy}` });
  }

  /** Add a change for which the server has figures. Raises an error with a message for people if it is refused. */
  async addChange({ text, words, selection }) {
    const present = this.settings.value.changes.map((change) => change.text);
    this.root.setAttribute("aria-busy", "true");
    try {
      await this.simulation.figures([[...present, text]]);
    } catch (error) {
      if (error.status === 401) showTokenForm();
      this.root.setAttribute("aria-busy", "false");
      throw new Error(refusal(error.message, { text, selection }));
    }
    this.settings.change(({ changes }) => changes.push({ text, words }));
  }

  /** Add the change that the user wrote. One that is refused stays in the field, with the reason. */
  async addOwnChange() {
    const text = this.part("own-text").value.trim();
    this.showError("own-change", null);
    if (!text) return;
    try {
      await this.addChange({ text, words: text });
      this.part("own-text").value = "";
    } catch (error) {
      this.showError("own-change", error);
    }
  }

  /** Compute the figures of the current settings, and show them or the error. */
  async update() {
    this.controller?.abort();
    const { signal } = (this.controller = new AbortController());
    this.showSources();
    this.curves.changed();
    if (!this.settings.hasTable()) {
      this.showMissingTable();
      return;
    }
    this.root.setAttribute("aria-busy", "true");
    this.part("retry").hidden = true;
    try {
      await this.showTable(signal);
      this.showSettings();
      this.best.changed();
      this.showChanges(null);
      await this.showFigures(signal);
      this.store.saveMarket(this.settings.encode());
      await this.showComparison(signal);
      this.showError("comparison", null);
      this.curves.follow();
    } catch (error) {
      if (error.name === "AbortError") return;
      this.showFailure(error);
    } finally {
      if (!signal.aborted) this.root.setAttribute("aria-busy", "false");
    }
  }

  /** Show the size and the columns of the table, if it is another one than before. */
  async showTable(signal) {
    const found = await this.simulation.describe(signal);
    const description = { ...found, labels: this.settings.labels(found) };
    if (JSON.stringify(description) === JSON.stringify(this.description)) return;
    this.description = description;
    const { value } = this.settings;
    const { features } = description;
    const segments = description.segments.filter(hasFewGroups);
    if (![...segments, ...features].some(({ name }) => name === value.by)) value.by = null;
    if (value.by === null && description.labels === null) value.by = firstCategory(features);
    this.fillColumns(segments, features);
    this.form.show(description);
    this.curves.show(description);
    this.best.show(description);
    const [sets, alternatives] = [description.sets, description.alternatives].map((n) => n.toLocaleString("en"));
    this.part("size").textContent = `${sets} choice sets with ${alternatives} alternatives`;
    this.part("place").max = description.sets;
    this.part("few").hidden = value.source !== "sample";
  }

  fillColumns(segments, features) {
    const { settings } = this;
    const option = ({ name }) => [name, titled(settings.titles(name))];
    const none = this.description.labels === null ? "none: by position" : "none: all choice sets together";
    const categories = features.filter(({ values }) => values !== null);
    const ofAlternatives = categories.map(({ name }) => [name, `alternatives by ${settings.titles(name).title}`]);
    fill(this.part("by"), [["", none], ...segments.map(option), ...ofAlternatives]);
    fill(this.part("revenue"), [["", "(none)"], ...settings.revenueColumns().map(option)]);
    fill(this.part("unit-cost"), [["", "(none)"], ...features.filter(({ values }) => values === null).map(option)]);
  }

  showSources() {
    const { schema, examples } = this.store;
    const { value, text } = this.settings;
    fill(this.part("source"), [
      ...(schema.table ? [["table", `${schema.table.name} (of the server)`]] : []),
      ...(value.file !== null ? [["file", text === null ? `${value.file} (open it first)` : value.file]] : []),
      ...(examples.length ? [["sample", `${examples.length} sample choice sets of the model`]] : []),
    ]);
    this.showSettings();
  }

  /** Show the settings in the fields at the top. */
  showSettings() {
    const { source, by, limits, revenue, unitCost, model } = this.settings.value;
    const shown = { source, by, revenue, "unit-cost": unitCost, model };
    for (const [name, value] of Object.entries(shown)) this.part(name).value = value ?? "";
    this.part("unit-cost").disabled = revenue === null;
    this.showRules();
    this.part("limits").value = limits;
    this.part("limits").closest("label").hidden = !this.isNumericSegment(by);
    byId("undo-market").disabled = this.settings.past.length === 0;
    byId("redo-market").disabled = this.settings.future.length === 0;
  }

  /** Offer the people of a hierarchical logit. */
  showRules() {
    const people = this.settings.people();
    const number = people?.toLocaleString("en");
    const ofPeople = [["logit", `the ${number} people of the model`], ["first-choice", "their first choices"]];
    this.part("rule").closest("label").hidden = people === null;
    fill(this.part("rule"), [["", "people like them"], ...ofPeople]);
    this.part("rule").value = this.settings.rule() ?? "";
  }

  /** Whether a column makes segments of numbers, which the user can limit. */
  isNumericSegment(name) {
    return this.description?.segments.some((column) => column.name === name && column.values === null) ?? false;
  }

  /** Ctrl+Z undoes; Ctrl+Shift+Z and Ctrl+Y redo. In a text field the browser handles these keys. */
  onKey(event) {
    const key = event.key.toLowerCase();
    if (this.root.hidden || !(event.ctrlKey || event.metaKey) || !["z", "y"].includes(key) || isTyping(event)) return;
    event.preventDefault();
    if (key === "y" || event.shiftKey) this.settings.redo();
    else this.settings.undo();
  }

  showMissingTable() {
    const { file } = this.settings.value;
    const missing = `This link was made with the table ${file}, which is not part of the link.`;
    this.part("status").textContent =
      file === null ? "Open a table with the choice sets of the market." : `${missing} Open it to see the same market.`;
    this.part("work").hidden = true;
    this.root.setAttribute("aria-busy", "false");
  }

  showChanges(extents) {
    const { changes } = this.settings.value;
    const remove = (k) => this.settings.change((value) => value.changes.splice(k, 1));
    const redraw = () => drawChanges(this.part("list"), changes, extents, remove, this.store.schema.label);
    keepFocus(this.part("list"), redraw, this.part("form").querySelector("select"));
    this.part("none").hidden = changes.length > 0;
    for (const name of ["clear", "save"]) this.part(name).disabled = changes.length === 0;
  }

  async showFigures(signal) {
    const texts = this.settings.value.changes.map(({ text }) => text);
    [this.figures] = await this.simulation.figures([texts], { signal });
    const { figures, settings } = this;
    this.part("work").hidden = false;
    this.part("results").hidden = false;
    await this.showTiles(signal);
    this.drawGroups();
    this.showChanges(figures.changes);
    const notes = figures.notes.filter((note) => !note.startsWith("no diversion")); // which is not shown
    const everyone = `Each choice set is answered by all ${settings.people()?.toLocaleString("en")} people of the model.`;
    const sentences = [WITHOUT_OUTSIDE, ...(settings.rule() ? [everyone] : []), reliability(figures.intervals), ...notes.map(sentence)];
    const items = sentences.map((note) => make("li", {}, note));
    this.part("notes").replaceChildren(...items);
    this.part("status").textContent = "";
    const hasCommand = texts.length > 0 && settings.rule() === null;
    this.part("command").disabled = !hasCommand;
    this.part("command-text").textContent = hasCommand ? scenarioCommand(settings) : "";
    this.part("command-line").hidden = !hasCommand;
    byId("live").textContent = this.announcement();
  }

  /** Draw the table of groups, sorted by the column whose head was clicked. */
  drawGroups() {
    const { figures, settings, order } = this;
    const sort = (next) => {
      this.order = next;
      keepFocus(this.part("groups"), () => this.drawGroups());
    };
    drawGroups(this.part("groups"), figures, settings, { order, sort });
    drawScale(this.part("scale"), figures);
    markOverflow(this.part("groups").parentElement);
  }

  /** Show the totals: of all alternatives, and of the user's own if some are chosen. */
  async showTiles(signal) {
    const { figures, settings } = this;
    const byOwn = groupingBy(this.best.product(), settings.store.schema.label);
    const hasNames = (byOwn === null && figures.groups[0].segment !== null) || byOwn === settings.value.by;
    const texts = settings.value.changes.map(({ text }) => text);
    const options = { by: byOwn, intervals: false, signal };
    const ofOwn = !settings.value.own.length || hasNames ? figures : (await this.simulation.figures([texts], options))[0];
    const names = settings.value.own.filter((own) => ofOwn.groups.some(({ name }) => name === own));
    const groups = ofOwn.groups.filter(({ name }) => names.includes(name));
    let total = groups.length === 1 ? groups[0] : totalOf(groups);
    if (figures.groups[0].share.low !== null && !(groups.length === 1 && ofOwn === figures) && names.length)
      total = (await this.simulation.figures([texts], { by: { column: byOwn, merge: names }, signal }))[0].groups[0];
    const own = names.length ? { names, total } : null;
    drawTiles(this.part("tiles"), figures, settings, own);
  }

  announcement() {
    const { revenue, groups, changes } = this.figures;
    if (!changes.length) return "The market today is shown.";
    const largest = [...groups].sort((one, other) => Math.abs(other.share.change) - Math.abs(one.share.change))[0];
    const total = revenue ? `Revenue ${revenue.after.toFixed(0)}, was ${revenue.before.toFixed(0)}. ` : "";
    return `${total}Largest change: ${readable(largest.group)}, ${(100 * largest.share.change).toFixed(1)} percentage points.`;
  }

  /** Compute the saved scenarios one after the other. One that does not fit the table shows its error. */
  async showComparison(signal) {
    const { changes, scenarios } = this.settings.value;
    this.all = [{ name: "current changes", changes, figures: this.figures }];
    for (const scenario of scenarios) {
      try {
        const [figures] = await this.simulation.figures([scenario.changes.map(({ text }) => text)], { signal });
        this.all.push({ ...scenario, figures });
      } catch (error) {
        if (error.name === "AbortError") throw error;
        this.all.push({ ...scenario, figures: null, error: error.message });
      }
    }
    keepFocus(this.part("comparison"), () => this.comparison.draw(this.all));
    markOverflow(this.comparison.table.parentElement);
  }

  showFailure(error) {
    if (error.status === 401) showTokenForm();
    this.part("results").hidden = true;
    this.part("save").disabled = true;
    this.part("work").hidden = this.description === undefined;
    this.part("status").textContent = error.message;
    this.part("retry").hidden = error.status === 422;
  }

  showError(name, error) {
    this.root.querySelector(`[data-error=${name}]`).textContent = error ? error.message : "";
  }

  async copyCommand() {
    const isCopied = await copyText(scenarioCommand(this.settings));
    this.part("command").textContent = isCopied ? "Copied" : "Select the command below";
    setTimeout(() => (this.part("command").textContent = "Copy command"), 1500);
  }

  /** Open one choice set, with the changes, on the view of single choice sets. */
  async showSet() {
    const place = Number(this.part("place").value) - 1;
    const changes = this.settings.value.changes.map(({ text }) => text);
    const { model } = this.settings.value;
    try {
      const found = await sendRequest("v1/market/set", { ...this.settings.table(), place, changes, model });
      const { sets } = await sendRequest("v1/probabilities", { sets: [found.before], model: "main" });
      this.showError("set", null);
      this.openSet(found, sets[0].probabilities, `${this.settings.tableName()}, choice set ${found.id}`);
    } catch (error) {
      this.showError("set", error);
    }
  }
}

/** Whether a column makes segments to read: not a person's id. Numbers are grouped into four bins. */
const hasFewGroups = ({ values }) => values === null || values.length <= MAX_SEGMENTS;

/** The first category of alternatives, which groups alternatives without labels better than their positions. */
function firstCategory(features) {
  return features.find(({ values }) => values !== null && values.length > 1)?.name ?? null;
}
