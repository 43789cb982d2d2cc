import { useQueries } from "@tanstack/react-query";
import { stateCountQuery, STATES, type State } from "../api/queries";

/** How many GPUs are in each state; `null` for what has not been counted. */
export interface FleetCounts {
  readonly byState: ReadonlyMap<State, number | null>;
  readonly total: number | null;
  readonly simulated: boolean;
}

export function useFleetCounts(enabled = true): FleetCounts {
  const answers = useQueries({ queries: STATES.map((state) => ({ ...stateCountQuery(state), enabled })) });
  const byState = new Map(STATES.map((state, place) => [state, answers[place]?.data?.total ?? null]));
  const counted = [...byState.values()];
  return {
    byState,
    total: counted.includes(null) ? null : counted.reduce<number>((sum, count) => sum + (count ?? 0), 0),
    simulated: answers.some((answer) => answer.data?.gpus.some((gpu) => gpu.simulated) === true),
  };
}

/** The same of GPUs that are all here: nobody needs to be asked. */
export function countsOf(gpus: readonly { readonly state: State }[]): Pick<FleetCounts, "byState" | "total"> {
  const byState = new Map(STATES.map((state) => [state, 0]));
  for (const { state } of gpus) byState.set(state, (byState.get(state) ?? 0) + 1);
  return { byState, total: gpus.length };
}
