import { useQueries, useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { wholeFleetQuery } from "../api/fleet";
import { stateCountQuery, STATES } from "../api/queries";
import { countsOf, useJudge, type Judgement } from "./judgement";

/** How many GPUs there are of each word; `null` for what has not been counted. */
export interface FleetCounts {
  readonly byWord: ReadonlyMap<Judgement, number | null>;
  readonly total: number | null;
}

/** Every GPU with its judge, and how many of each word there are. */
export function useJudgedFleet() {
  const fleet = useQuery(wholeFleetQuery());
  const { judge, found } = useJudge();
  // Only of a fleet that no answer holds the server has to count, and it counts states.
  const isPart = fleet.data !== undefined && fleet.data.total > fleet.data.gpus.length;
  const states = useStateCounts(isPart);
  const counts = useMemo((): FleetCounts => {
    if (fleet.data === undefined) return NOT_COUNTED;
    return isPart ? states : { byWord: countsOf(fleet.data.gpus, judge), total: fleet.data.gpus.length };
  }, [fleet.data, isPart, states, judge]);
  return { fleet, judge, found, counts };
}

const NOT_COUNTED: FleetCounts = { byWord: new Map(), total: null };

function useStateCounts(enabled: boolean): FleetCounts {
  return useQueries({
    queries: STATES.map((state) => ({ ...stateCountQuery(state), enabled })),
    combine: (answers) => {
      const byWord = new Map(STATES.map((state, place) => [state, answers[place]?.data?.total ?? null]));
      const counted = [...byWord.values()];
      return { byWord, total: counted.includes(null) ? null : counted.reduce<number>((sum, count) => sum + (count ?? 0), 0) };
    },
  });
}
