// Reading and writing numbers.

export const exact = (value) => Number(value.toPrecision(7)); // models read single precision, about 7 digits

/** A number for editing, without thousands separators. */
export function plain(value) {
  return typeof value === "number" ? String(exact(value)) : String(value ?? "");
}

/** A number for display, with thousands separators and about three digits. */
export function pretty(value) {
  if (typeof value !== "number") return String(value ?? "");
  const size = Math.abs(value);
  const digits = size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3;
  if (size > 0 && (size < 0.001 || size >= 1e7)) return value.toExponential(1);
  return value.toLocaleString("en", { maximumFractionDigits: digits });
}

export function percent(p) {
  if (p > 0 && p < 0.001) return "<0.1%";
  if (p < 1 && p > 0.999) return ">99.9%";
  return `${(100 * p).toFixed(1)}%`;
}

/** A difference of probabilities in percentage points, with a proper minus sign; empty if it rounds to zero. */
export function points(change) {
  const text = (100 * Math.abs(change)).toFixed(1);
  if (text === "0.0") return "";
  return `${change > 0 ? "+" : "−"}${text}`;
}

/** A caveat of the model as a sentence, with a capital letter and a full stop. */
export function sentence(text) {
  return `${text.charAt(0).toUpperCase()}${text.slice(1).replace(/\.$/, "")}.`;
}

/** Read a number as typed: 1234.5, 1,234.5, 1 234.5 or 12,5. NaN if it is not a number. */
export function parse(text) {
  let t = text
    .trim()
    .replace(/[\s\u00a0\u202f_]/g, "")
    .replace("−", "-");
  if (/^[-+]?\d{1,3}(,\d{3})+(\.\d*)?$/.test(t)) t = t.replaceAll(",", "");
  else if (/^[-+]?\d*,\d+$/.test(t)) t = t.replace(",", ".");
  return /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(t) ? Number(t) : NaN;
}

/** An amount such as revenue, with thousands separators and without an exponent. */
export function amount(value) {
  const size = Math.abs(value);
  const digits = size >= 1000 ? 0 : size >= 10 ? 1 : 2;
  return value.toLocaleString("en", { maximumFractionDigits: digits }).replace("-", "−");
}

/** A change in an amount, with its sign; 0 has no sign. */
export function signedAmount(value) {
  const text = amount(value);
  return value > 0 && /[1-9]/.test(text) ? `+${text}` : text.replace(/^−(?=[0.,]*$)/, "");
}

/** A relative change in per cent, with its sign; empty if there is nothing to compare with. */
export function relative(before, after) {
  if (!before) return "";
  const change = 100 * (after / before - 1);
  const text = Math.abs(change).toFixed(1);
  return text === "0.0" ? "±0.0%" : `${change > 0 ? "+" : "−"}${text}%`;
}
