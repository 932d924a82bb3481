// Parts of tables.

import { make } from "../dom.js";

export const row = (...cells) => make("tr", {}, ...cells);
export const cell = (...content) => make("td", {}, ...content);
export const columnHead = (text, attributes = {}) => make("th", { scope: "col", ...attributes }, text);
export const rowHead = (text) => make("th", { scope: "row" }, text);
