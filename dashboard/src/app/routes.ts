export type Route =
  | { readonly page: "now" }
  | { readonly page: "fleet" }
  | { readonly page: "gpu"; readonly id: string }
  | { readonly page: "compare" }
  | { readonly page: "hosts" }
  | { readonly page: "jobs" }
  | { readonly page: "clusters" }
  | { readonly page: "node"; readonly cluster: string; readonly node: string }
  | { readonly page: "queue" }
  | { readonly page: "statistics" }
  | { readonly page: "about" }
  | { readonly page: "missing" };

/** Which page a path names. A path with a broken escape names none. */
export function routeOf(pathname: string): Route {
  const path = pathname.replace(/\/+$/, "");
  if (path === "") return { page: "now" };
  if (path === "/gpus") return { page: "fleet" };
  if (path === "/compare") return { page: "compare" };
  if (path === "/hosts") return { page: "hosts" };
  if (path === "/jobs") return { page: "jobs" };
  if (path === "/queue") return { page: "queue" };
  if (path === "/statistics") return { page: "statistics" };
  if (path === "/about") return { page: "about" };
  if (path === "/clusters") return { page: "clusters" };
  try {
    const gpu = /^\/gpus\/([^/]+)$/.exec(path)?.[1];
    if (gpu !== undefined) return { page: "gpu", id: decodeURIComponent(gpu) };
    const [, cluster, node] = /^\/clusters\/([^/]+)\/([^/]+)$/.exec(path) ?? [];
    if (cluster !== undefined && node !== undefined) return { page: "node", cluster: decodeURIComponent(cluster), node: decodeURIComponent(node) };
  } catch {
    // A broken escape.
  }
  return { page: "missing" };
}
