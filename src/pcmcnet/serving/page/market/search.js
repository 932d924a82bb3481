// Searches for the best prices and the best offer of some alternatives, the user's own, in a market of competitors.
//
// `evaluate` returns the values of lists of changes, NaN for a list that is not possible.

import { isOneOf, quoteName, quoteWord } from "./language.js";

const MAX_ROUNDS = 5;
const MAX_COMPARED = 6; // own alternatives of which all offers are compared: at most 63 offers

/**
 * Search for prices: one alternative after the other gets the best of its steps, until no change helps. The prices of
 * competitors stay. The result is the best of the price lists that were tried, which need not be the best of all.
 */
export async function searchPrices({ own, steps, change, evaluate }) {
  let prices = Object.fromEntries(own.map((name) => [name, 0]));
  const [current] = await evaluate([change(prices)]);
  let [value, tried] = [current, 1];
  for (let round = 0; round < MAX_ROUNDS; round += 1) {
    const before = value;
    for (const name of own) {
      const lists = steps.filter((step) => step !== prices[name]).map((step) => ({ ...prices, [name]: step }));
      const values = await evaluate(lists.map(change));
      const best = indexOfBest(values, value);
      if (best !== null) [prices, value] = [lists[best], values[best]];
      tried += lists.length;
    }
    if (value <= before || own.length === 1) break;
  }
  const ends = [steps[0], steps.at(-1)];
  return { prices, value, current, tried, atEdge: own.filter((name) => ends.includes(prices[name])) };
}

/** The changes that move prices by some per cent. Alternatives with the same change share a statement. */
export function priceChanges(prices, price, column) {
  const byStep = new Map();
  for (const [name, step] of Object.entries(prices)) if (step) byStep.set(step, [...(byStep.get(step) ?? []), name]);
  return [...byStep].map(([step, names]) => ({
    text: `${quoteName(price.name)} *= ${(100 + step) / 100} where ${isOneOf(column, names)}`,
    words: `${price.title} of ${names.join(", ")} ${step > 0 ? "rises" : "falls"} by ${Math.abs(step)}%`,
  }));
}

/**
 * The factor by which changes have already multiplied the price of an alternative, or null if they change it in another
 * way: by an amount, or only in some choice sets.
 */
export function factorToday(changes, price, column, name) {
  const [start, ofLabel] = [`${quoteName(price)} `, `${quoteName(column)} == `];
  const own = ofLabel + quoteWord(name);
  let factor = 1;
  for (const { text } of changes) {
    if (text.startsWith(`add ${quoteWord(name)} `)) return null; // it has no price today
    if (!text.startsWith(start)) continue;
    const [assignment, where = own] = text.slice(start.length).split(" where ");
    const isList = where.startsWith(`${quoteName(column)} in (`) && !where.includes(" and ");
    if (where.startsWith(ofLabel) && where !== own && !where.startsWith(`${own} and `)) continue;
    if (isList && !where.includes(quoteWord(name))) continue;
    const amount = assignment.match(/^\*= ([\d.]+)$/)?.[1];
    if (amount === undefined || (where !== own && !isList)) return null;
    factor *= Number(amount);
  }
  return factor;
}

/**
 * Search for the offer: which of the own alternatives to drop. All offers are compared if there are few. Otherwise, one
 * alternative after the other is dropped as long as this helps.
 */
export async function searchOffer({ own, change, evaluate }) {
  const [current] = await evaluate([change([])]);
  const found = { dropped: [], value: current, current, tried: 1, impossible: 0, exact: own.length <= MAX_COMPARED };
  let offers = found.exact ? subsets(own) : droppedOne(own, []);
  while (offers.length) {
    const values = await evaluate(offers.map(change));
    found.tried += offers.length;
    found.impossible += values.filter(Number.isNaN).length;
    const best = indexOfBest(values, found.value);
    if (best === null) break;
    [found.dropped, found.value] = [offers[best], values[best]];
    offers = found.exact ? [] : droppedOne(own, found.dropped);
  }
  return found;
}

export function offerChanges(dropped, column) {
  if (!dropped.length) return [];
  return [{ text: `remove where ${isOneOf(column, dropped)}`, words: `${dropped.join(", ")} dropped` }];
}

/** Index of the largest value above `least`, or null. */
function indexOfBest(values, least) {
  const largest = Math.max(least, ...values.filter((value) => !Number.isNaN(value)));
  return largest > least ? values.indexOf(largest) : null;
}

/** All lists of names to drop, except none and all. */
function subsets(names) {
  return Array.from({ length: 2 ** names.length - 2 }, (_, k) => names.filter((_name, j) => ((k + 1) >> j) & 1));
}

/** The lists with one more name to drop; one name is always left. */
function droppedOne(names, dropped) {
  if (dropped.length >= names.length - 1) return [];
  return names.filter((name) => !dropped.includes(name)).map((name) => [...dropped, name]);
}
