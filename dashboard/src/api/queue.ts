import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { REFRESH_INTERVAL_MS } from "../shared/config";
import { ApiError, dataOf, queueApi } from "./client";
import type { components } from "./queue-schema";

// The broker: what it holds, its dead letters, and what can be done with them.

export type QueueStats = components["schemas"]["Stats"];
export type TopicStats = components["schemas"]["TopicStats"];
export type GroupStats = components["schemas"]["GroupStats"];
export type DeadLetter = components["schemas"]["DeadLetter"];
export type Replayed = components["schemas"]["Replayed"];

/** Letters that are looked at together. */
export const LETTERS = 50;

export function queueQuery() {
  return queryOptions({
    queryKey: ["queue"],
    queryFn: async ({ signal }) => dataOf(await queueApi.GET("/stats", { signal })),
    refetchInterval: REFRESH_INTERVAL_MS,
  });
}

/** Dead letters of a topic from an id on, the oldest first, without their payload. */
export function lettersQuery(topic: string, from: number) {
  return queryOptions({
    queryKey: ["queue", "dead", topic, from],
    queryFn: async ({ signal }) => {
      const params = { path: { topic }, query: { from, limit: LETTERS, content: false } };
      return dataOf(await queueApi.GET("/topics/{topic}/dead", { params, signal }));
    },
    refetchInterval: REFRESH_INTERVAL_MS,
    placeholderData: keepPreviousData,
  });
}

/** Which letters of a topic: one, or so many of the oldest. */
export type Selection = { readonly id: number } | { readonly oldest: number };

/** Publishes letters to their topic again. The broker does it for 20 s at a time; it is asked again while it gets on and there is room. */
export async function redrive(topic: string, selection: Selection): Promise<Replayed> {
  let sum = { letters: 0, without_room: 0, unreadable: 0, left: 0 };
  let next = "id" in selection ? { ids: [selection.id] } : { oldest: selection.oldest };
  for (;;) {
    const answer = dataOf(await queueApi.POST("/topics/{topic}/dead/replay", { params: { path: { topic } }, body: next }));
    sum = { ...answer, letters: sum.letters + answer.letters };
    if (answer.left === 0 || answer.letters === 0 || answer.without_room > 0) return sum;
    // What cannot be read stays in front.
    next = { oldest: answer.left + answer.unreadable };
  }
}

/** Throws letters away; how many. */
export async function purge(topic: string, selection: Selection): Promise<number> {
  const query = "id" in selection ? { ids: String(selection.id) } : { oldest: selection.oldest };
  const answer = await queueApi.DELETE("/topics/{topic}/dead", { params: { path: { topic }, query } });
  return dataOf(answer).letters;
}

/** Whether a token, or another one, would help. */
export function needsToken(error: Error | null): boolean {
  return error instanceof ApiError && error.failure.kind === "server" && [401, 403].includes(error.failure.status);
}

/** Whether there is no broker to be asked, as with NATS. */
export function hasNoBroker(error: Error | null): boolean {
  return error instanceof ApiError && error.failure.kind === "server" && error.failure.code === "no_broker";
}
