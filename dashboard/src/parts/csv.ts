/** What stands in a file; null: it is not known. */
export type CsvValue = string | number | null;

/** Rows as CSV: a line each, the names first. A text that a spreadsheet would calculate is none of ours to change: it is quoted, as it is. */
export function csvOf(names: readonly string[], rows: readonly (readonly CsvValue[])[]): string {
  return [names, ...rows].map((row) => row.map(quoted).join(",")).join("\r\n") + "\r\n";
}

/** What a CSV of the API lacks, as its last line says; empty: it is whole. */
export function lackOf(csv: string): string {
  return /(?:^|\n)# ([^\r\n]+)\r?\n?$/.exec(csv)?.[1] ?? "";
}

function quoted(value: CsvValue): string {
  if (value === null) return "";
  const text = String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
