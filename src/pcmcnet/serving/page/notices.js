// Notices at the top of the page, and the form for the access token.

import { hasToken } from "./api.js";
import { make } from "./dom.js";

export const byId = (id) => document.getElementById(id);

/** Show the form for the token. The state of the page is in its address, so nothing is lost. */
export function showTokenForm() {
  if (hasToken()) byId("token-note").textContent = "The server rejected this token. Check it and try again.";
  byId("token").hidden = false;
  byId("token-value").focus();
}

/** Show a notice at the top of the page, with a button that calls `retry`, or else one that closes the notice. */
export function showNotice(text, { retry = null } = {}) {
  const clear = () => byId("notices").replaceChildren();
  const button = retry
    ? make("button", { type: "button", on: { click: () => (clear(), retry()) } }, "Try again")
    : make("button", { type: "button", on: { click: clear } }, "Close");
  byId("notices").replaceChildren(make("p", { class: "notice bad" }, make("span", {}, text), button));
}
