// Changes in the language of scenarios, as of `pcmcnet scenario`, and the same changes in words.
//
// A form gives {kind, column, labels, how, value, where, name, like}:
//
//     kind "change"   price *= 1.1 where mode == 'train' and purpose == 'business'
//     kind "add"      add 'night train' like 'train' with price *= 0.8
//     kind "drop"     remove where mode == 'bus'

const RESERVED = ["where", "with", "and", "or", "not", "in", "like"];

/** Ways to change a number: the text after the column, and the words after its title. */
export const WAYS = {
  rise: { title: "rises by %", text: (v) => `*= ${exactly(1 + v / 100)}`, words: (v) => `rises by ${v}%` },
  fall: { title: "falls by %", text: (v) => `*= ${exactly(1 - v / 100)}`, words: (v) => `falls by ${v}%` },
  plus: { title: "rises by", text: (v) => `+= ${v}`, words: (v, unit) => `rises by ${v}${unit}` },
  minus: { title: "falls by", text: (v) => `-= ${v}`, words: (v, unit) => `falls by ${v}${unit}` },
  times: { title: "is multiplied by", text: (v) => `*= ${v}`, words: (v) => `is multiplied by ${v}` },
  set: { title: "is set to", text: (v) => `= ${v}`, words: (v, unit) => `is set to ${v}${unit}` },
};

/** Comparisons of a condition: their titles, for numbers and for categories. */
export const COMPARISONS = {
  "==": "is",
  "!=": "is not",
  ">=": "is at least",
  "<=": "is at most",
  ">": "is above",
  "<": "is below",
};

const exactly = (value) => String(Number(value.toPrecision(12)));

/** A column name, in backticks if it is not a plain word. */
export function quoteName(name) {
  return /^[\p{L}_][\p{L}\p{N}_.]*$/u.test(name) && !RESERVED.includes(name) ? name : `\`${name}\``;
}

/** A text value in quotes. */
export function quoteWord(word) {
  if (!word.includes("'")) return `'${word}'`;
  if (!word.includes('"')) return `"${word}"`;
  throw new Error(`A change cannot refer to ${word}, which contains both kinds of quotes.`);
}

/** A value of a condition or of a column: a number, or text in quotes. */
export const quoteValue = (value) => (typeof value === "number" ? String(value) : quoteWord(value));

/** The condition that an alternative has one of some labels, or one of some values of another column. */
export function isOneOf(column, values) {
  const name = quoteName(column);
  if (values.length === 1) return `${name} == ${quoteWord(values[0])}`;
  return `${name} in (${values.map(quoteWord).join(", ")})`;
}

/** Whether a change drops all alternatives with a name, without a further condition. */
export function dropsAll(text, column, name) {
  if (name.includes("'") && name.includes('"')) return false; // no change can refer to it
  const start = `remove where ${quoteName(column)} `;
  if (text === `${start}== ${quoteWord(name)}`) return true;
  return text.startsWith(`${start}in (`) && !text.includes(" and ") && text.includes(quoteWord(name));
}

/** Return a change as {text, words}. `titles` gives the display name and the unit of a column, `label` its column. */
export function writeChange(change, titles, label) {
  const conditions = [
    ...(change.labels.length && change.kind !== "add" ? [isOneOf(label, change.labels)] : []),
    ...(change.where ? [conditionText(change.where)] : []),
  ];
  const where = conditions.length ? ` where ${conditions.join(" and ")}` : "";
  const only = change.where ? `, where ${whereInWords(change.where, titles)}` : "";
  const filter = change.where ? ` with ${selectionInWords(change.where, titles)}` : "";
  const selection = `${change.labels.join(", ") || "alternative"}${filter}`;
  return { text: textOf(change) + where, words: inWords(change, titles) + only, selection };
}

/** What a change applies to: "changes 364 train offers". An offer is an alternative in one choice set. */
export function extentInWords(text, { alternatives }, label) {
  const verb = text.startsWith("remove ") || text === "remove" ? "drops" : /^(add|copy)\b/.test(text) ? "adds" : "changes";
  const start = label ? `${quoteName(label)} == ` : "\0";
  const [, name] = text.includes(start) ? (text.split(start)[1].match(/^['"]([^'"]+)['"]/) ?? []) : [];
  return `${verb} ${alternatives.toLocaleString("en")} ${name ? `${name} ` : ""}${alternatives === 1 ? "offer" : "offers"}`;
}

/** Why the server refuses a change, in words for people. `selection` is what the change would have changed. */
export function refusal(message, { text, selection }) {
  const prefixes = ["scenarios: ", `change '${text}': `, `change "${text}": `];
  const reason = prefixes.reduce((rest, prefix) => (rest.startsWith(prefix) ? rest.slice(prefix.length) : rest), message);
  const isEmpty = /^(the condition selects none|nothing to )/.test(reason);
  if (isEmpty && selection) return `No ${selection} is left to change. Not applied.`;
  const sentence = reason.charAt(0).toUpperCase() + reason.slice(1);
  return `${/[.?!]$/.test(sentence) ? sentence : `${sentence}.`} Not applied.`;
}

const conditionText = ({ column, sign, value }) => `${quoteName(column)} ${sign} ${quoteValue(value)}`;

function textOf(change) {
  if (change.kind === "drop") return "remove";
  const assignment = change.column === null ? "" : `${quoteName(change.column)} ${assigned(change)}`;
  if (change.kind === "change") return assignment;
  const start = change.like === null ? "copy" : `add ${quoteWord(change.name)} like ${quoteWord(change.like)}`;
  return assignment ? `${start} with ${assignment}` : start;
}

const assigned = ({ how, value }) => (typeof value === "number" ? WAYS[how].text(value) : `= ${quoteWord(value)}`);

function inWords(change, titles) {
  const of = change.labels.length ? ` of ${change.labels.join(", ")}` : "";
  if (change.kind === "drop") return `${change.labels.join(", ") || "Alternatives"} dropped`;
  if (change.kind === "change") return `${titles(change.column).title}${of} ${howInWords(change, titles)}`;
  const start = change.like === null ? "Copies added" : `${change.name} added, like ${change.like}`;
  return change.column === null ? start : `${start}; its ${titles(change.column).title} ${howInWords(change, titles)}`;
}

function howInWords({ column, how, value }, titles) {
  if (typeof value !== "number") return `is set to ${value}`;
  const { unit } = titles(column);
  return WAYS[how].words(value, unit ? ` ${unit}` : "");
}

/** A condition without its verb: "Distance below 300", "Purpose visit". */
const selectionInWords = ({ column, sign, value }, titles) =>
  `${titles(column).title} ${COMPARISONS[sign].replace(/^is ?/, "")} ${value}`.replace("  ", " ");

const whereInWords = ({ column, sign, value }, titles) => `${titles(column).title} ${COMPARISONS[sign]} ${value}`;
