// Where a third alternative would attract, resemble, or make a compromise: plain geometry of two that trade off.
//
// Places are pairs in the unit square of the map; `better` says of each axis whether more (1) or less (-1) is better.
// With a = (4, 6), b = (6, 4) and more better, the three places are (3, 5), (3.5, 6.5) and (2, 8), as in figure 2 of
// the paper.

export const EFFECTS = {
  attraction: (a) => `worse than ${a} on both: it makes ${a} look good`,
  similarity: (a) => `much like ${a}: it takes from ${a} rather than from the other`,
  compromise: (a) => `beyond ${a}, which becomes the one in the middle`,
};

/** Whether each of the two is better on one axis, by `least` or more. */
export function tradesOff(a, b, better, least = 0.02) {
  const [x, y] = [0, 1].map((k) => better[k] * (a[k] - b[k]));
  return x * y < 0 && Math.min(Math.abs(a[0] - b[0]), Math.abs(a[1] - b[1])) > least;
}

/** Places of the effects with respect to a, those that fit on the map; none where a and b do not trade off. */
export function effectPlaces(a, b, better) {
  if (!tradesOff(a, b, better)) return {};
  const places = {};
  const worse = [0, 1].map((k) => Math.min(Math.abs(a[k] - b[k]) / 2, 0.95 * (better[k] > 0 ? a[k] : 1 - a[k])));
  if (Math.min(...worse) > 0.01) places.attraction = a.map((at, k) => at - better[k] * worse[k]);
  const room = Math.min(...[0, 1].map((k) => (a[k] > b[k] ? 1 - a[k] : a[k]) / Math.abs(a[k] - b[k])));
  const beyond = (share) => a.map((at, k) => at + share * (at - b[k]));
  if (room > 0.05) places.similarity = beyond(Math.min(0.25, room));
  if (room > 0.4) places.compromise = beyond(Math.min(1, room));
  return places;
}

/** All pairs of a list, those of early ones first. */
export function inPairs(list) {
  const places = list.flatMap((_, j) => list.slice(0, j).map((_, i) => [i, j]));
  return places.sort((one, other) => one[0] + one[1] - other[0] - other[1]).map(([i, j]) => [list[i], list[j]]);
}
