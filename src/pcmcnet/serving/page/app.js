// The beginning: asks the server what the model reads and for an example, and opens the page.

import { ask, keepToken, Refusal } from "./api.js";
import { askToken, find, notice } from "./notices.js";
import { Page } from "./page.js";
import { Store } from "./state.js";

const HINT = "pcmcnet-hint";

async function start() {
  find("token").hidden = true;
  try {
    const schema = await ask("v1/schema");
    const examples = await ask("v1/examples").catch(withoutExample);
    open(schema, examples?.sets ?? []);
  } catch (error) {
    if (error instanceof Refusal && error.status === 401) askToken();
    else notice(error.message, { again: start });
  }
}

/** A model saved by an earlier version has none. */
function withoutExample(error) {
  if (error.status === 404) return null;
  throw error;
}

find("token").addEventListener("submit", (event) => {
  event.preventDefault();
  keepToken(find("token-value").value);
  if (find("work").hidden) start();
  else location.reload();
});

function open(schema, examples) {
  const store = new Store(schema, examples);
  const address = store.readAddress();
  if (address === false)
    notice("The address was made for a model with other columns, or is damaged. This is the example.");
  document.title = `${schema.title} – pcmcnet`;
  find("title").textContent = schema.title;
  find("model").textContent = facts(schema);
  find("loading").hidden = true;
  find("work").hidden = false;
  showHint();
  find("flow").hidden = !schema.has_rates;
  document.body.classList.toggle("no-baseline", !schema.has_baseline);
  document.body.classList.toggle("no-rates", !schema.has_rates);
  new Page(store);
}

/** What the model is, and what it was fitted to. */
function facts({ class: kind, trained_on: seen, baseline }) {
  const count = (number, noun) => (number ? `${number.toLocaleString("en")} ${noun}` : "");
  const sizes = [count(seen?.choice_sets, "choice sets"), count(seen?.alternatives, "alternatives")].filter(Boolean);
  const size = sizes.length ? `, fitted to ${sizes.join(" with ")}` : "";
  return kind + size + (baseline ? `; beside it ${baseline.class}` : "");
}

/** The first steps, until they are put away; a browser that keeps nothing shows them again. */
function showHint() {
  const kept = (act) => {
    try {
      return act(localStorage);
    } catch {
      return null;
    }
  };
  find("hint").hidden = kept((storage) => storage.getItem(HINT)) !== null;
  find("hint-close").addEventListener("click", () => {
    find("hint").hidden = true;
    kept((storage) => storage.setItem(HINT, "seen"));
    find("alternatives").focus();
  });
}

start();
