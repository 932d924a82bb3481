// Tables as text: read with commas, semicolons or tabs between cells and quotes around them; written as it was read.

/** {cells: rows of texts, the heads first, by: what separates them}; empty lines are left out. */
export function readCsv(text) {
  const plain = text.replace(/^\ufeff/, "").replace(/\r\n?/g, "\n");
  const first = plain.split("\n", 1)[0];
  const by = [",", ";", "\t"].sort((one, other) => first.split(other).length - first.split(one).length)[0];
  const cells = [[""]];
  let quoted = false;
  for (let k = 0; k < plain.length; k += 1) {
    const sign = plain[k];
    const row = cells[cells.length - 1];
    if (quoted && sign === '"' && plain[k + 1] === '"') {
      row[row.length - 1] += '"';
      k += 1;
    } else if (sign === '"' && (quoted || row[row.length - 1] === "")) quoted = !quoted;
    else if (!quoted && sign === by) row.push("");
    else if (!quoted && sign === "\n") cells.push([""]);
    else row[row.length - 1] += sign;
  }
  return { cells: cells.filter((row) => row.some((cell) => cell !== "")), by };
}

export function writeCsv(cells, by = ",") {
  const quote = (cell) => {
    const text = String(cell ?? "");
    return text.includes(by) || /["\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return `${cells.map((row) => row.map(quote).join(by)).join("\n")}\n`;
}

/** Hand a file to the person. */
export function download(content, name, type = "text/csv") {
  const link = document.createElement("a");
  const isData = content.startsWith("data:");
  link.href = isData ? content : URL.createObjectURL(new Blob([content], { type }));
  link.download = name;
  link.click();
  if (!isData) setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
