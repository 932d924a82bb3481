// Searches for the best prices and the best offer of some alternatives, the user's own, in a market of competitors.
//
// `evaluate` returns the value of lists of changes, or NaN for a list that is not possible.

import { isOneOf, quoteName } from "./language.js";

const MAX_ROUNDS = 5;
const MAX_COMPARED = 6; // own alternatives of which all offers are compared: 63 offers

/**
 * Search for prices: one alternative after the other gets the best of its steps, until no change helps. The prices of
 * the others stay. The result is the best of the price lists that were tried, which need not be the best of all.
 */
export async function searchPrices({ own, steps, change, evaluate }) {
  let prices = Object.fromEntries(own.map((name) => [name, 0]));
  let [value] = await evaluate([change(prices)]);
  const current = value;
  let tried = 1;
  for (let round = 0; round < MAX_ROUNDS; round += 1) {
    const before = value;
    for (const name of own) {
      const lists = steps.filter((step) => step !== prices[name]).map((step) => ({ ...prices, [name]: step }));
      const values = await evaluate(lists.map(change));
      tried += lists.length;
      const best = values.reduce((best, one, k) => (one > (best < 0 ? value : values[best]) ? k : best), -1);
      if (best >= 0) [prices, value] = [lists[best], values[best]];
    }
    if (value <= before || own.length === 1) break;
  }
  const ends = [steps[0], steps.at(-1)];
  return { prices, value, current, tried, atEdge: own.filter((name) => ends.includes(prices[name])) };
}

/** The changes that set prices to some per cent of today. Alternatives with the same change share a statement. */
export function priceChanges(prices, price, label) {
  const byStep = new Map();
  for (const [name, step] of Object.entries(prices)) if (step) byStep.set(step, [...(byStep.get(step) ?? []), name]);
  return [...byStep].map(([step, names]) => ({
    text: `${quoteName(price.name)} *= ${Number((1 + step / 100).toPrecision(12))} where ${isOneOf(label, names)}`,
    words: `${price.title} of ${names.join(", ")} ${step > 0 ? "rises" : "falls"} by ${Math.abs(step)}%`,
  }));
}

/**
 * Search for the offer: which of the own alternatives to drop. All offers are compared if there are few; otherwise one
 * alternative after the other is dropped as long as this helps.
 */
export async function searchOffer({ own, change, evaluate }) {
  const [current] = await evaluate([change([])]);
  if (own.length <= MAX_COMPARED) {
    const offers = subsets(own);
    const values = await evaluate(offers.map(change));
    const best = values.reduce((best, one, k) => (one > (best < 0 ? current : values[best]) ? k : best), -1);
    const impossible = values.filter(Number.isNaN).length;
    return { dropped: best < 0 ? [] : offers[best], value: best < 0 ? current : values[best], current, tried: values.length + 1, impossible, exact: true };
  }
  let [dropped, value, tried, impossible] = [[], current, 1, 0];
  while (dropped.length < own.length - 1) {
    const offers = own.filter((name) => !dropped.includes(name)).map((name) => [...dropped, name]);
    const values = await evaluate(offers.map(change));
    tried += offers.length;
    impossible += values.filter(Number.isNaN).length;
    const best = values.reduce((best, one, k) => (one > (best < 0 ? value : values[best]) ? k : best), -1);
    if (best < 0) break;
    [dropped, value] = [offers[best], values[best]];
  }
  return { dropped, value, current, tried, impossible, exact: false };
}

/** All sets of names to drop, except none and all. */
function subsets(names) {
  return Array.from({ length: 2 ** names.length - 2 }, (_, k) => names.filter((_name, j) => ((k + 1) >> j) & 1));
}

export function offerChanges(dropped, label) {
  return dropped.length ? [{ text: `remove where ${isOneOf(label, dropped)}`, words: `${dropped.join(", ")} dropped` }] : [];
}
