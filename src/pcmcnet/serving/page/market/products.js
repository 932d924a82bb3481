// What the alternatives of a table are called: their labels or, in a table without labels, a category of alternatives
// such as the airline.

/** Return a map from columns that name alternatives to their names; labels come first. */
export function productColumns(description, label) {
  const categories = description.features.filter(({ values }) => values !== null && values.length > 1);
  const pairs = categories.map(({ name, values }) => [name, values]);
  return new Map(description.labels ? [[label, description.labels], ...pairs] : pairs);
}

/** The numeric columns of a table that the model uses, those in money first. */
export function numericColumns(description, settings) {
  const { columns } = settings.store.schema;
  const isUsed = ({ name, values }) => values === null && columns.some((column) => column.name === name);
  const isMoney = ({ name }) => Number(settings.titles(name).money);
  return description.features.filter(isUsed).sort((one, other) => isMoney(other) - isMoney(one));
}

/** The grouping of a request by these names: labels are the default. */
export const groupingBy = (column, label) => (column === label ? null : column);
