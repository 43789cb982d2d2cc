export type Route =
  | { readonly page: "fleet" }
  | { readonly page: "gpu"; readonly id: string }
  | { readonly page: "statistics" }
  | { readonly page: "missing" };

/** Which page a path names. A path with a broken escape names none. */
export function routeOf(pathname: string): Route {
  const path = pathname.replace(/\/+$/, "");
  if (path === "" || path === "/gpus") return { page: "fleet" };
  if (path === "/statistics") return { page: "statistics" };
  const gpu = /^\/gpus\/([^/]+)$/.exec(path)?.[1];
  if (gpu === undefined) return { page: "missing" };
  try {
    return { page: "gpu", id: decodeURIComponent(gpu) };
  } catch {
    return { page: "missing" };
  }
}
