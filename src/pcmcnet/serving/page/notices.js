// What the page says above everything else, and the form that asks for a token.

import { hasToken } from "./api.js";
import { make } from "./dom.js";

export const find = (id) => document.getElementById(id);

/** Show the form; the state is in the address, so that nothing is lost by it. */
export function askToken() {
  if (hasToken()) find("token-note").textContent = "The server did not take this token. Look at how it was started.";
  find("token").hidden = false;
  find("token-value").focus();
}

/** Say something above everything else; `again` offers to repeat what failed. */
export function notice(text, { again = null } = {}) {
  const button =
    again &&
    make("button", { type: "button", on: { click: () => (find("notices").replaceChildren(), again()) } }, "Try again");
  const close = make("button", { type: "button", on: { click: () => find("notices").replaceChildren() } }, "Close");
  find("notices").replaceChildren(make("p", { class: "notice bad" }, make("span", {}, text), button || close));
}
