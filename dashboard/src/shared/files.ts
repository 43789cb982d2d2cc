/** Gives a file to the person who looks at the page. */
export function saveFile(name: string, content: Blob): void {
  const url = URL.createObjectURL(content);
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  // The browser has the file by the next task.
  setTimeout(() => URL.revokeObjectURL(url), 0);
}

/** A text as part of a file's name. */
export function fileName(...parts: readonly string[]): string {
  return parts.map((part) => part.replace(/[^A-Za-z0-9._-]+/g, "-").replace(/^-+|-+$/g, "")).join("_");
}
