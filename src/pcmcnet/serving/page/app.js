// Entry point: loads the schema of the model and its examples, and opens the page.

import { RequestError, sendRequest, storeToken } from "./api.js";
import { byId, showNotice, showTokenForm } from "./notices.js";
import { Page } from "./page.js";
import { Store } from "./state.js";
import { Views } from "./views.js";

const HINT = "pcmcnet-hint";

async function start() {
  byId("token").hidden = true;
  try {
    const schema = await sendRequest("v1/schema");
    const examples = await sendRequest("v1/examples").catch(ignoreNotFound);
    open(schema, examples?.sets ?? []);
  } catch (error) {
    if (error instanceof RequestError && error.status === 401) showTokenForm();
    else showNotice(error.message, { retry: start });
  }
}

/** Models saved by earlier versions have no examples. */
function ignoreNotFound(error) {
  if (error.status === 404) return null;
  throw error;
}

byId("token").addEventListener("submit", (event) => {
  event.preventDefault();
  storeToken(byId("token-value").value);
  if (byId("loading").hidden) location.reload();
  else start();
});

function open(schema, examples) {
  const store = new Store(schema, examples);
  if (store.readAddress() === false)
    showNotice("This link is damaged or belongs to a model with different columns. The example is shown instead.");
  document.title = `${schema.title} – pcmcnet`;
  byId("title").textContent = schema.title;
  byId("model").textContent = describeModel(schema);
  byId("model").title = describeModel(schema); // a narrow header cuts the text
  byId("loading").hidden = true;
  byId("work").hidden = false;
  showHint();
  byId("flow").hidden = !schema.has_rates;
  document.body.classList.toggle("no-baseline", !schema.has_baseline);
  document.body.classList.toggle("no-rates", !schema.has_rates);
  const page = new Page(store);
  new Views(store, page.tables);
}

/** The class of the model, the size of its training data, and the baseline. */
function describeModel({ class: name, trained_on: trained, baseline }) {
  const count = (number, noun) => (number ? `${number.toLocaleString("en")} ${noun}` : "");
  const counts = [count(trained?.choice_sets, "choice sets"), count(trained?.alternatives, "alternatives")];
  const sizes = counts.filter(Boolean).join(" with ");
  return name + (sizes && `, fitted to ${sizes}`) + (baseline ? `; baseline: ${baseline.class}` : "");
}

/** Show the first steps until the user closes them. Without local storage they are shown on every visit. */
function showHint() {
  const tryStorage = (action) => {
    try {
      return action(localStorage);
    } catch {
      return null;
    }
  };
  byId("hint").hidden = tryStorage((storage) => storage.getItem(HINT)) !== null;
  byId("hint-close").addEventListener("click", () => {
    byId("hint").hidden = true;
    tryStorage((storage) => storage.setItem(HINT, "seen"));
    byId("alternatives").focus();
  });
}

start();
