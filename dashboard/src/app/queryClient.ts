import { QueryClient } from "@tanstack/react-query";

/** The client cache. Polling is the retry; a hidden page does not poll. */
export function makeQueryClient(): QueryClient {
  return new QueryClient({
    defaultOptions: {
      queries: { retry: false, networkMode: "always", staleTime: 2000, gcTime: 5 * 60_000, refetchOnWindowFocus: true },
    },
  });
}
