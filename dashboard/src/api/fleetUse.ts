import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { present } from "../shared/instant";
import { MINUTE } from "../shared/time";
import { api, dataOf, isTooLarge, partialOf, type Schemas } from "./client";
import { given, type Span } from "./queries";

// How much of the fleet was used over time, and by whom.

export type FleetUse = Schemas["FleetUse"];
export type FleetUseLine = Schemas["FleetUseLine"];

/** By what the fleet is shared out. */
export const SHARES = ["namespace", "job", "model", "node", "rack", "cluster"] as const;
export type Share = (typeof SHARES)[number];

/** Groups with a line of their own. With the others, which are one line, a chart can still tell them apart. */
const TOP = 5;
/** By how much a step is wider where an answer would be too large. */
const WIDER = 4;
/** The steps of questions that needed wider ones, so that they are not asked for in vain each time. */
const answered = new Map<string, number>();
export interface FleetUseAsk {
  readonly by: Share;
  /** Tests of the identity, as the API writes them. */
  readonly where: string;
  /** From a start to an end, or so many milliseconds up to now. */
  readonly range: Span | { readonly lengthMs: number };
  readonly stepMs: number;
}

export function fleetUseQuery(ask: FleetUseAsk) {
  const { range } = ask;
  return queryOptions({
    queryKey: ["fleet use", ask],
    queryFn: async ({ signal }) => {
      const end = "end" in range ? range.end : present();
      const span = { start: "start" in range ? range.start : end - range.lengthMs, end };
      // A large fleet that changes hands all the time has wider steps: a limit of the API is no answer of the page.
      const question = JSON.stringify(ask);
      for (let stepMs = answered.get(question) ?? ask.stepMs; ; stepMs *= WIDER) {
        try {
          const answer = await api.GET("/api/v1/analysis/usage", { params: { query: questionOf({ ...ask, stepMs }, span) }, signal });
          if (stepMs > ask.stepMs) answered.set(question, stepMs);
          return { span, use: dataOf(answer), partial: partialOf(answer) };
        } catch (error) {
          if (!isTooLarge(error) || stepMs >= end - span.start) throw error;
        }
      }
    },
    // A long range changes slowly and costs more: it is asked for at most sixty times while it passes.
    refetchInterval: "end" in range ? false : Math.max(MINUTE, range.lengthMs / 60),
    placeholderData: keepPreviousData,
  });
}

/** The same question as an address, for those who ask it elsewhere. */
export function fleetUsePath(ask: FleetUseAsk, span: Span): string {
  const { top, ...question } = questionOf(ask, span);
  return `/api/v1/analysis/usage?${new URLSearchParams({ ...question, top: String(top) }).toString()}`;
}

function questionOf({ by, where, stepMs }: FleetUseAsk, { start, end }: Span) {
  return { by, ...given({ where }), top: TOP, step: `${stepMs / 1000}s`, start: new Date(start).toISOString(), end: new Date(end).toISOString() };
}
