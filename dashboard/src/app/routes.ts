import { PAGES, type Page } from "./pages";

/** A page, and what the path names for it. */
export interface Route {
  readonly page: Page;
  readonly named: Readonly<Record<string, string>>;
}

/** Which page stands at a path; null: none. A path with a broken escape has none. */
export function routeOf(pathname: string): Route | null {
  const segments = segmentsOf(pathname);
  for (const page of PAGES) {
    const named = namedBy(segmentsOf(page.path), segments);
    if (named !== null) return { page, named };
  }
  return null;
}

function segmentsOf(path: string): string[] {
  return path.replace(/\/+$/, "").split("/");
}

function namedBy(pattern: readonly string[], segments: readonly string[]): Record<string, string> | null {
  if (pattern.length !== segments.length) return null;
  const named: Record<string, string> = {};
  for (const [place, part] of pattern.entries()) {
    const segment = segments[place] ?? "";
    if (!part.startsWith(":")) {
      if (part !== segment) return null;
      continue;
    }
    const text = decoded(segment);
    if (text === null || text === "") return null;
    named[part.slice(1)] = text;
  }
  return named;
}

function decoded(segment: string): string | null {
  try {
    return decodeURIComponent(segment);
  } catch {
    return null;
  }
}

/** What the browser's tab says. */
export function titleOf(route: Route | null): string {
  const title = route?.page.title ?? "";
  const text = typeof title === "string" ? title : title(route?.named ?? {});
  return text === "" ? "gpuvitals" : `${text} · gpuvitals`;
}
