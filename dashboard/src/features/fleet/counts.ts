import { useQueries } from "@tanstack/react-query";
import { stateCountQuery, STATES, type State } from "../../api/queries";

/** How many GPUs are in each state; `null` for what has not been counted. */
export interface FleetCounts {
  readonly byState: ReadonlyMap<State, number | null>;
  readonly total: number | null;
  readonly simulated: boolean;
}

export function useFleetCounts(): FleetCounts {
  const answers = useQueries({ queries: STATES.map((state) => stateCountQuery(state)) });
  const byState = new Map(STATES.map((state, place) => [state, answers[place]?.data?.total ?? null]));
  const counted = [...byState.values()];
  return {
    byState,
    total: counted.includes(null) ? null : counted.reduce<number>((sum, count) => sum + (count ?? 0), 0),
    simulated: answers.some((answer) => answer.data?.gpus.some((gpu) => gpu.simulated) === true),
  };
}
