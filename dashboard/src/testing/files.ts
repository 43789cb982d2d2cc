import { onTestFinished, vi } from "vitest";

/** The files that the page gives to the person from now on. */
export function savedFiles(): readonly Blob[] {
  const saved: Blob[] = [];
  vi.spyOn(URL, "createObjectURL").mockImplementation((blob) => {
    saved.push(blob as Blob);
    return "blob:x";
  });
  vi.spyOn(URL, "revokeObjectURL").mockReturnValue(undefined);
  // The test's browser would go to the file as to a page.
  const click = vi.spyOn(HTMLAnchorElement.prototype, "click").mockReturnValue(undefined);
  onTestFinished(() => click.mockRestore());
  return saved;
}
