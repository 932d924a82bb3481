// Positions of a third alternative that show the attraction, similarity or compromise effect.
//
// Positions are pairs in the unit square of the map. `better` is 1 for an axis where more is better, and -1 where less
// is better. With a = (4, 6), b = (6, 4) and more being better, the three positions are (3, 5), (3.5, 6.5) and (2, 8),
// as in figure 2 of the paper.

export const EFFECTS = {
  attraction: (a) => `worse than ${a} in both features, which makes ${a} look good`,
  similarity: (a) => `similar to ${a}, and takes choices from ${a} rather than from the other alternative`,
  compromise: (a) => `more extreme than ${a}, which makes ${a} the compromise`,
};

/** Whether a is better on one axis and b on the other, by more than `least`. */
export function tradesOff(a, b, better, least = 0.02) {
  const [x, y] = [0, 1].map((k) => better[k] * (a[k] - b[k]));
  return x * y < 0 && Math.min(Math.abs(a[0] - b[0]), Math.abs(a[1] - b[1])) > least;
}

/** Positions of the effects in favour of a that fit on the map; none if a and b do not trade off. */
export function findEffects(a, b, better) {
  if (!tradesOff(a, b, better)) return {};
  const positions = {};
  const worse = [0, 1].map((k) => Math.min(Math.abs(a[k] - b[k]) / 2, 0.95 * (better[k] > 0 ? a[k] : 1 - a[k])));
  if (Math.min(...worse) > 0.01) positions.attraction = a.map((at, k) => at - better[k] * worse[k]);
  const room = Math.min(...[0, 1].map((k) => (a[k] > b[k] ? 1 - a[k] : a[k]) / Math.abs(a[k] - b[k])));
  const beyond = (share) => a.map((at, k) => at + share * (at - b[k]));
  if (room > 0.05) positions.similarity = beyond(Math.min(0.25, room));
  if (room > 0.4) positions.compromise = beyond(Math.min(1, room));
  return positions;
}

/** All pairs of a list; pairs of early items come first. */
export function pairsOf(list) {
  const indices = list.flatMap((_, j) => list.slice(0, j).map((_, i) => [i, j]));
  return indices.sort((one, other) => one[0] + one[1] - other[0] - other[1]).map(([i, j]) => [list[i], list[j]]);
}
