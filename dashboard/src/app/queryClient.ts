import { hashKey, QueryClient, type QueryKey } from "@tanstack/react-query";
import { chosenInstant } from "../shared/instant";

/** What is the same as of any instant, by the beginning of its key. */
const TIMELESS: ReadonlySet<unknown> = new Set(["code", "catalogue", "course", "happened", "health", "stats", "queue", "clusters"]);

function hashOf(key: QueryKey): string {
  return hashKey(TIMELESS.has(key[0]) ? key : [...key, chosenInstant()]);
}

/** The client cache. Polling is the retry; a hidden page does not poll. What is asked as of an instant is an answer of its own. */
export function makeQueryClient(): QueryClient {
  return new QueryClient({
    defaultOptions: {
      queries: { queryKeyHashFn: hashOf, retry: false, networkMode: "always", staleTime: 2000, gcTime: 5 * 60_000, refetchOnWindowFocus: true },
    },
  });
}
