// Scales of the sliders and of the axes of the map.

import { exact } from "./format.js";

/**
 * The scale of a numeric column: 0 is the minimum and 1 the maximum of the training data. Quartiles are equally spaced,
 * so that a long tail does not squeeze the usual values together. Whole numbers of a short range are equally spaced.
 * Null if the range is unknown or a single value.
 */
export function makeScale(column) {
  const { min, max } = column;
  if (column.field !== "number" || !Number.isFinite(min) || !Number.isFinite(max) || !(min < max)) return null;
  const knots = [min, ...(column.quartiles ?? []), max];
  const { whole } = column;
  const steps = whole && max - min <= 50 ? max - min : 200;
  const places =
    whole && max - min <= 50
      ? new Map([
          [min, [0]],
          [max, [1]],
        ])
      : new Map();
  if (!places.size) {
    knots.forEach((value, k) => places.set(value, [...(places.get(value) ?? []), k / (knots.length - 1)]));
    places.set(min, [0]);
    places.set(max, [1]);
  }
  const values = [...places.keys()].sort((one, other) => one - other);
  const at = values.map((value) => places.get(value).reduce((sum, u) => sum + u, 0) / places.get(value).length);
  const place = (value) => between(values, at, Math.min(max, Math.max(min, value)));
  const raw = (u) => between(at, values, Math.min(1, Math.max(0, u)));
  const value = (u) => {
    const width = Math.max(raw(u + 0.5 / steps) - raw(u - 0.5 / steps), 1e-12);
    const unit = whole ? Math.max(1, 10 ** Math.floor(Math.log10(width))) : 10 ** Math.floor(Math.log10(width));
    return Math.min(max, Math.max(min, roundTo(raw(u), unit)));
  };
  return { min, max, whole, steps, place, value, raw };
}

/**
 * The scale of a slider: the range of the values on the page, plus half its width on either side, within the range of
 * the training data. Whole numbers of a short range get the whole range. Steps are round numbers, at least a hundred of
 * them. Null if no range is known.
 */
export function makeSpan(column, values) {
  const numbers = values.filter((value) => typeof value === "number" && Number.isFinite(value));
  const [min, max] = [column.min ?? -Infinity, column.max ?? Infinity];
  if (column.field !== "number" || (!numbers.length && !(min < max))) return null;
  const [least, largest] = numbers.length ? [Math.min(...numbers), Math.max(...numbers)] : [min, max];
  if (column.whole && max - min <= 50) return steps(Math.min(min, least), Math.max(max, largest), 1, true);
  const fallback = Number.isFinite(max - min) ? (max - min) / 20 : 1;
  const width = largest - least || Math.abs(least) || fallback || 1;
  const low = Math.min(least, Math.max(min, least - width / 2));
  const high = Math.max(largest, Math.min(max, largest + width / 2));
  const rough = (high - low || width) / 100;
  const power = 10 ** Math.floor(Math.log10(rough));
  const unit = [5, 2, 1].map((factor) => factor * power).find((step) => step <= rough * 1.001) ?? power;
  return steps(low, high, column.whole ? Math.max(1, Math.round(unit)) : unit, column.whole);
}

/** A scale with steps at the multiples of a unit, from the one below `low` to the one above `high`. */
function steps(low, high, unit, whole) {
  const first = Math.floor(low / unit + 1e-9);
  const count = Math.max(1, Math.ceil(high / unit - 1e-9) - first);
  const at = (k) => exact(unit < 1 ? (first + k) / Math.round(1 / unit) : (first + k) * unit);
  return {
    steps: count,
    value: (k) => at(k),
    place: (value) => Math.min(count, Math.max(0, Math.round(value / unit) - first)),
    /** The next multiple of `times` units above a value, or below it for direction -1. Small values take small steps. */
    next: (value, direction, times) => {
      const finest = value === 0 ? Infinity : 10 ** Math.floor(Math.log10(Math.abs(value) / 20));
      const size = times * (whole ? Math.max(1, Math.min(unit, finest)) : Math.min(unit, finest));
      const k = direction > 0 ? Math.floor(value / size + 1e-6) + 1 : Math.ceil(value / size - 1e-6) - 1;
      return exact(size < 1 ? k / Math.round(1 / size) : k * size);
    },
  };
}

/** Piecewise linear interpolation at x through the points (xs, ys); xs increase. */
export function between(xs, ys, x) {
  let k = 1;
  while (k < xs.length - 1 && x > xs[k]) k += 1;
  const share = (x - xs[k - 1]) / (xs[k] - xs[k - 1]);
  return ys[k - 1] + share * (ys[k] - ys[k - 1]);
}

/** A linear scale from low to high for an axis. Whole numbers of a short range stay whole. */
export function makeAxis(low, high, whole) {
  const steps = whole && high - low <= 50 ? Math.round(high - low) : 200;
  const unit = whole
    ? Math.max(1, 10 ** Math.floor(Math.log10((high - low) / 200)))
    : 10 ** Math.floor(Math.log10((high - low) / 200));
  const place = (value) => Math.min(1, Math.max(0, (value - low) / (high - low)));
  const value = (u) => Math.min(high, Math.max(low, roundTo(low + u * (high - low), unit)));
  const contains = (number) => number >= low && number <= high;
  return {
    low,
    high,
    steps,
    place,
    value,
    contains,
    ticks: ticks(low, high).filter((tick) => !whole || Number.isInteger(tick)),
  };
}

/** About four to seven round numbers between low and high. */
function ticks(low, high) {
  const rough = (high - low) / 7;
  const power = 10 ** Math.floor(Math.log10(rough));
  const unit = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((step) => step >= rough * 0.999);
  const first = Math.ceil(low / unit - 1e-9);
  const last = Math.floor(high / unit + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, k) => exact((first + k) * unit));
}

/** Round to a multiple of a power of ten. Below 1 the inverse is used, because it is exact. */
function roundTo(value, unit) {
  const inverse = Math.round(1 / unit);
  return exact(unit < 1 ? Math.round(value * inverse) / inverse : Math.round(value / unit) * unit);
}
