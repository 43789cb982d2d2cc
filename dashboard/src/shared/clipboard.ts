/** Copies a text; whether that worked. Browsers offer the clipboard to pages by TLS or from this machine alone: elsewhere a selection is copied. */
export async function copyText(text: string): Promise<boolean> {
  const clipboard = (navigator as { readonly clipboard?: Clipboard }).clipboard;
  if (clipboard === undefined) return copySelected(text);
  try {
    await clipboard.writeText(text);
    return true;
  } catch {
    return copySelected(text);
  }
}

function copySelected(text: string): boolean {
  const field = document.createElement("textarea");
  field.value = text;
  field.setAttribute("aria-hidden", "true");
  field.style.position = "fixed";
  field.style.opacity = "0";
  document.body.append(field);
  const focused = document.activeElement;
  field.focus();
  field.select();
  try {
    // Deprecated, and the only way without TLS.
    // eslint-disable-next-line @typescript-eslint/no-deprecated
    return document.execCommand("copy");
  } finally {
    field.remove();
    if (focused instanceof HTMLElement) focused.focus();
  }
}
