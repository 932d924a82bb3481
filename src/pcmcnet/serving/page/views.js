// The two views of the page: one choice set, and the market. The market is loaded when it is first shown.

import { byId } from "./notices.js";

export class Views {
  constructor(store, tables) {
    this.store = store;
    this.market = null;
    byId("views").hidden = false;
    byId("view-set").addEventListener("click", () => this.choose("set"));
    byId("view-market").addEventListener("click", () => this.choose("market"));
    byId("back-to-market").addEventListener("click", () => this.choose("market"));
    tables.onMarket(async (name, text) => {
      this.choose("market");
      (await this.makeMarket()).openText(name, text);
    });
    window.addEventListener("hashchange", () => {
      this.show(store.view);
      this.market?.reload();
    });
    const isFresh = !location.hash && store.schema.table;
    this.show(store.view === "market" || isFresh ? "market" : "set");
  }

  choose(view) {
    this.show(view);
    if (this.store.market !== null) this.store.showView(view);
    window.scrollTo(0, 0);
  }

  show(view) {
    const isMarket = view === "market";
    this.store.view = view;
    byId("work").hidden = isMarket;
    byId("market").hidden = !isMarket;
    byId("view-set").setAttribute("aria-pressed", String(!isMarket));
    byId("view-market").setAttribute("aria-pressed", String(isMarket));
    document.body.classList.toggle("shows-market", isMarket);
    if (isMarket) this.makeMarket();
  }

  /** Load the files of the market view, once. */
  async makeMarket() {
    const { Market } = await import("./market/market.js");
    this.market ??= new Market(byId("market"), this.store, (...found) => this.openSet(...found));
    return this.market;
  }

  /** Show one choice set of the market. Its reference marks are the probabilities before the changes. */
  openSet({ after, origins }, before, title) {
    const { label } = this.store.schema;
    const rows = after.alternatives.map((values, k) => ({
      ...(label ? { name: String(values[label]) } : {}),
      ...{ values, mark: origins[k] === null ? 0 : before[origins[k]] },
    }));
    const meaning = "The marks show the probabilities before the changes of the market.";
    byId("from-market-text").textContent = `${title}. ${meaning}`;
    byId("from-market").hidden = false;
    this.store.load({ individual: after.individual, rows });
    this.choose("set");
  }
}
