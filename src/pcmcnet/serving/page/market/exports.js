// Exports of what the market view shows: tables as CSV, and the current scenario as a command.

import { quantities } from "./results.js";

/** The groups of a scenario as cells, with intervals if there are any. */
export function groupCells(figures, settings) {
  const columns = quantities(figures, settings);
  const hasSegments = figures.groups[0].segment !== null;
  const hasIntervals = figures.groups.some((group) => group.share.low !== null);
  const parts = ["before", "after", "change", ...(hasIntervals ? ["low", "high"] : [])];
  const heads = columns.flatMap(({ key }) => parts.map((part) => `${key}_${part}`));
  const rows = figures.groups.map((group) => [
    ...(hasSegments ? [group.segment] : []),
    group.name,
    ...columns.flatMap(({ key }) => parts.map((part) => group[key][part] ?? "")),
  ]);
  return [[...(hasSegments ? [settings.value.by] : []), "alternative", ...heads], ...rows];
}

/** The command that computes the same figures. Without changes there is none. */
export function scenarioCommand(settings) {
  const { changes, revenue, unitCost, source, model } = settings.value;
  const by = settings.grouping();
  const { title } = settings.store.schema;
  const options = [
    ...changes.map(({ text }) => ["--change", text]),
    ...(by === null ? [] : [["--by", by]]),
    ...(revenue === null ? [] : [["--revenue", revenue]]),
    ...(revenue === null || unitCost === null ? [] : [["--unit-cost", unitCost]]),
  ];
  const table = source === "sample" ? "TABLE" : quote(settings.tableName());
  const words = [`pcmcnet scenario ${model === "main" ? quote(title) : "BASELINE"} ${table}`];
  return [...words, ...options.map(([name, value]) => `    ${name} ${quote(value)}`)].join(" \\\n");
}

/** A word for the shell. */
export function quote(word) {
  if (/^[\w./:@%+=-]+$/.test(word)) return word;
  if (!/["$`\\!]/.test(word)) return `"${word}"`;
  return `'${word.replaceAll("'", "'\\''")}'`;
}
