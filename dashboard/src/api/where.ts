/** A test for GPUs with this text, or without one, in an identity column. Commas and semicolons in it would end it: then any character may stand there. */
export function whereIs(column: string, text: string | null): string {
  if (text === null) return `${column}=`;
  if (!/[,;]/.test(text)) return `${column}=${text}`;
  return `${column}=~^${patternOf(text)}$`;
}

/** A test for those with one of these texts. */
export function whereOneOf(column: string, texts: readonly string[]): string {
  if (!texts.some((text) => /[,;]/.test(text))) return `${column}=${texts.join(",")}`;
  return `${column}=~^(?:${texts.map(patternOf).join("|")})$`;
}

function patternOf(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&").replace(/[,;]/g, ".");
}

/** Tests in words: `namespace research`. */
export function whereWords(where: string): string {
  return where
    .split(";")
    .map((test) => (/^[a-z]+=$/.test(test) ? `no ${test.slice(0, -1)}` : test.replace(/^([a-z]+)=(?!~)/, "$1 ")))
    .join(", ");
}
