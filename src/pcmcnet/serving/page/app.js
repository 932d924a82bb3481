// The beginning: asks the server what the model reads and for an example, and opens the page.

import { ask, keepToken, Refusal } from "./api.js";
import { askToken, find, notice } from "./notices.js";
import { Page } from "./page.js";
import { Store } from "./state.js";

async function start() {
  find("token").hidden = true;
  try {
    const schema = await ask("v1/schema");
    const example = await ask("v1/example").catch(withoutExample);
    open(schema, example?.sets[0] ?? null);
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

function open(schema, example) {
  const store = new Store(schema, example);
  const address = store.readAddress();
  if (address === false)
    notice("The address was made for a model with other columns, or is damaged. This is the example.");
  document.title = `${schema.class} – pcmcnet`;
  const size = schema.trained_on?.choice_sets;
  find("model").textContent = schema.class + (size ? `, fitted to ${size.toLocaleString("en")} choice sets` : "");
  find("work").hidden = false;
  find("flow").hidden = !schema.has_rates;
  document.body.classList.toggle("no-baseline", !schema.has_baseline);
  document.body.classList.toggle("no-rates", !schema.has_rates);
  new Page(store);
}

start();
