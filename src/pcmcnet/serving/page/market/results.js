// The figures of the current scenario: totals, and a table of groups in segments.

import { make } from "../dom.js";
import { amount, percent, points, relative, sentence, signedAmount } from "../format.js";
import { cell, columnHead, row } from "./cells.js";

export const WITHOUT_OUTSIDE =
  "Everyone chooses one of the alternatives: nobody stays at home. So higher prices and dropped alternatives look better " +
  "for total revenue than they are.";

/** What the server says about intervals, in words for people. */
export function reliability(text) {
  if (!text.includes("has no standard errors")) return sentence(text);
  const remedy = "Fit an ensemble, or use pn.bootstrap in Python, to get them.";
  return `No intervals: this model has no standard errors. ${remedy}`;
}

const SIGNED_POINTS = (change) => points(change) || "0.0";

/** The quantities with figures, each with its title, its unit and the formats of a value and of a change. */
export function quantities(figures, settings) {
  const unit = settings.value.revenue === null ? "" : settings.titles(settings.value.revenue).unit;
  const of = (name) => (unit ? `${name} (${unit})` : name);
  return [
    { key: "share", title: "Share", format: percent, change: SIGNED_POINTS, unit: "% points" },
    { key: "volume", title: "Choices", format: amount, change: signedAmount, unit: "" },
    ...(figures.revenue ? [{ key: "revenue", title: of("Revenue"), format: amount, change: signedAmount, unit }] : []),
    ...(figures.margin ? [{ key: "margin", title: of("Margin"), format: amount, change: signedAmount, unit }] : []),
  ];
}

/** Text of an interval of a change, or an empty text. */
export function interval({ low, high }, format) {
  return low === null || high === null ? "" : `${format(low)} to ${format(high)}`;
}

/** Draw the totals as tiles; `own` has the names of the user's own alternatives and their sums, or is null. */
export function drawTiles(root, figures, settings, own) {
  const choices = figures.groups.reduce((sum, group) => sum + group.volume.before, 0);
  const tiles = [
    tile("Choice sets", figures.sets.toLocaleString("en"), choicesNote(figures.sets, choices)),
    ...quantities(figures, settings)
      .filter(({ key }) => key === "revenue" || key === "margin")
      .flatMap((quantity) => tilesOf(quantity, figures, own)),
  ];
  root.replaceChildren(...tiles);
}

/** The total of all alternatives and, if the user has chosen some, that of the user's own. */
function tilesOf(quantity, figures, own) {
  const hasChanges = figures.changes.length > 0;
  const titled = (of) => quantity.title.replace(/^\w+/, (name) => `${name} of ${of}`);
  const all = totalTile({ ...quantity, title: titled("all alternatives") }, figures[quantity.key], hasChanges);
  if (own === null) return [all];
  const title = `Your ${quantity.title.charAt(0).toLowerCase()}${quantity.title.slice(1)}: ${own.names.join(", ")}`;
  return [all, totalTile({ ...quantity, title, key: `own-${quantity.key}` }, own.total[quantity.key], hasChanges)];
}

function choicesNote(sets, choices) {
  return Math.abs(choices - sets) < 0.5 ? "" : `with weights: ${amount(choices)} choices`;
}

function totalTile({ key, title, format, change }, total, hasChanges) {
  const { before, after } = total;
  if (!hasChanges) return tile(title, format(after), "today", key);
  const range = interval(total, change);
  const text = `${change(total.change)} (${relative(before, after) || "new"})`;
  return tile(title, format(after), `today ${format(before)}, ${text}`, key, range && `interval ${range}`);
}

function tile(title, value, note, key = null, range = "") {
  return make(
    "div",
    { class: "tile", "data-total": key },
    make("dt", {}, title),
    make("dd", {}, make("strong", {}, value), make("span", {}, note), range ? make("span", {}, range) : null),
  );
}

/** Draw the table of groups, with a line for each segment. `sort` is called with the order that a click asks for. */
export function drawGroups(table, figures, settings, { order, sort }) {
  const columns = quantities(figures, settings);
  const hasChanges = figures.changes.length > 0;
  const segments = bySegment(figures.groups).map(([segment, groups]) => [segment, sorted(groups, order)]);
  const full = scaleOf(figures);
  table.replaceChildren(
    make("caption", { class: "hidden" }, "Shares and amounts of the market by group, today and after the changes"),
    drawHead(columns, hasChanges, groupTitle(figures, settings), { order, sort }),
    ...segments.map(([segment, groups]) => drawSegment(segment, groups, columns, hasChanges, full, settings)),
  );
}

/** The groups in the order of one of their figures, or as they are. */
function sorted(groups, order) {
  if (order === null || groups.some((group) => !group[order.key])) return groups;
  const sign = order.isAscending ? 1 : -1;
  return [...groups].sort((one, other) => sign * (one[order.key][order.part] - other[order.key][order.part]));
}

/** The share at the right end of all bars: the largest share, rounded up to 5%. */
function scaleOf({ groups }) {
  const largest = Math.max(...groups.map(({ share }) => Math.max(share.before, share.after)));
  return Math.max(0.05, Math.ceil(20 * largest - 1e-9) / 20);
}

/** Explain the bars of the table. */
export function drawScale(root, figures) {
  const tick = make("span", { class: "tick-key", "aria-hidden": "true" });
  const today = figures.changes.length ? [" The mark ", tick, " is the share today. Click the head of a column to sort."] : [];
  root.replaceChildren(`Bars run from 0 to ${Math.round(100 * scaleOf(figures))}%.`, ...today);
}

/** Numbers in the name of a bin without exponents: 2.7e+04 is 27,000. */
export const readable = (name) =>
  name.replace(/(?<![\w.])\d+(\.\d+)?e[+-]\d+/g, (number) =>
    Number(number).toLocaleString("en", { maximumSignificantDigits: 4 }),
  );

/** What the groups are: alternatives, also within segments, or the values of another column. */
function groupTitle({ groups }, settings) {
  const { by } = settings.value;
  const column = by === null || groups[0].segment !== null ? settings.store.schema.label : by;
  return column ? settings.titles(column).title : "Alternative";
}

function drawHead(columns, hasChanges, title, { order, sort }) {
  const width = (key) => (hasChanges ? 3 : 1) + (key === "share" ? 1 : 0); // shares have bars
  const tops = columns.map((column) =>
    make("th", { scope: "colgroup", class: "first", colspan: width(column.key) }, column.title),
  );
  const first = columnHead(title, { rowspan: hasChanges ? 2 : null });
  if (!hasChanges) return make("thead", {}, row(first, ...tops));
  const names = columns.flatMap(({ key, unit }) => [
    ...(key === "share" ? [cell()] : []),
    ...["before", "after", "change"].map((part) => {
      const text = { before: "today", after: "after", change: unit === "% points" ? unit : "change" }[part];
      return sortableHead(text, { key, part }, order, sort);
    }),
  ]);
  return make("thead", {}, row(first, ...tops), row(...names));
}

/** A head whose click sorts by its column: the largest first, then the smallest first, then as before. */
function sortableHead(text, { key, part }, order, sort) {
  const isSorted = order?.key === key && order.part === part;
  const next = !isSorted ? { key, part, isAscending: false } : order.isAscending ? null : { ...order, isAscending: true };
  const arrow = !isSorted ? "" : order.isAscending ? " ▲" : " ▼";
  const button = make("button", { type: "button", class: "sort", on: { click: () => sort(next) } }, `${text}${arrow}`);
  const direction = order?.isAscending ? "ascending" : "descending";
  return make("th", { scope: "col", "aria-sort": isSorted ? direction : null }, button);
}

function drawSegment(segment, groups, columns, hasChanges, full, settings) {
  const rows = groups.map((group) => drawRow(group, readable(group.name), columns, hasChanges, full));
  if (segment === null) return make("tbody", {}, ...rows);
  const by = settings.titles(settings.value.by);
  const unit = /\d/.test(segment) && by.unit ? ` ${by.unit}` : "";
  const title = `${by.title}: ${readable(segment)}${unit}`;
  return make("tbody", {}, drawRow(totalOf(groups), title, columns, hasChanges, null), ...rows);
}

function drawRow(group, name, columns, hasChanges, full) {
  const cells = columns.flatMap(({ key, format, change }) => {
    const figure = group[key];
    const isSum = full === null;
    if (isSum && key === "share") return [make("td", { colspan: hasChanges ? 4 : 2 })];
    const bar = key === "share" ? [make("td", { class: "bars-cell" }, drawBar(figure, full, hasChanges))] : [];
    const today = make("td", { class: key === "share" ? null : "first" }, format(figure.before));
    if (!hasChanges) return [...bar, today];
    return [...bar, today, make("td", {}, format(figure.after)), changeCell(figure, change)];
  });
  return make("tr", full === null ? { class: "segment" } : {}, make("th", { scope: "row" }, name), ...cells);
}

function changeCell(figure, change) {
  const range = interval(figure, change);
  const text = change(figure.change);
  return make(
    "td",
    { class: directionOf(text) },
    text,
    range ? make("small", {}, range) : null,
  );
}

/** The class of a change: "up", "down", or null for a change that rounds to zero. */
export function directionOf(text) {
  return { "+": "up", "−": "down" }[text.charAt(0)] ?? null;
}

/** A bar of the share after the changes, with a tick at the share today. */
function drawBar({ before, after }, full, hasChanges) {
  const width = (share) => `${((100 * share) / (full || 1)).toFixed(1)}%`;
  const fill = make("span", { class: "fill" });
  fill.style.width = width(after);
  const tick = hasChanges ? make("span", { class: "tick" }) : null;
  if (tick) tick.style.left = width(before);
  return make("span", { class: "market-bar", "aria-hidden": "true" }, fill, tick);
}

/** [[segment, groups]] in the order of the groups; the segment is null if there are no segments. */
export function bySegment(groups) {
  const segments = new Map();
  for (const group of groups) segments.set(group.segment, [...(segments.get(group.segment) ?? []), group]);
  return [...segments];
}

/** Sums of the figures of some groups. The interval of a sum is not the sum of the intervals. */
export function totalOf(groups) {
  const sum = (key, when) => groups.reduce((total, group) => total + (group[key]?.[when] ?? 0), 0);
  const figure = (key) => {
    const [before, after] = [sum(key, "before"), sum(key, "after")];
    return { before, after, change: after - before, low: null, high: null };
  };
  return Object.fromEntries(["share", "volume", "revenue", "margin"].map((key) => [key, figure(key)]));
}
