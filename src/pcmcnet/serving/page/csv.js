// Tables as text. Cells are separated by commas, semicolons or tabs, and may be quoted.

/** Return {cells, separator}: rows of texts, the header first; empty lines are left out. */
export function readCsv(text) {
  const clean = text.replace(/^\ufeff/, "").replace(/\r\n?/g, "\n");
  const header = clean.split("\n", 1)[0];
  const separator = [",", ";", "\t"].sort((one, other) => header.split(other).length - header.split(one).length)[0];
  const cells = [[""]];
  let quoted = false;
  for (let k = 0; k < clean.length; k += 1) {
    const character = clean[k];
    const row = cells[cells.length - 1];
    if (quoted && character === '"' && clean[k + 1] === '"') {
      row[row.length - 1] += '"';
      k += 1;
    } else if (character === '"' && (quoted || row[row.length - 1] === "")) quoted = !quoted;
    else if (!quoted && character === separator) row.push("");
    else if (!quoted && character === "\n") cells.push([""]);
    else row[row.length - 1] += character;
  }
  return { cells: cells.filter((row) => row.some((cell) => cell !== "")), separator };
}

export function writeCsv(cells, separator = ",") {
  const quote = (cell) => {
    const text = String(cell ?? "");
    return text.includes(separator) || /["\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return `${cells.map((row) => row.map(quote).join(separator)).join("\n")}\n`;
}

/** Download a file in the browser. */
export function download(content, name, type = "text/csv") {
  const link = document.createElement("a");
  const isData = content.startsWith("data:");
  link.href = isData ? content : URL.createObjectURL(new Blob([content], { type }));
  link.download = name;
  link.click();
  if (!isData) setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
