import { queryOptions } from "@tanstack/react-query";
import { MINUTE } from "../shared/time";
import { api, dataOf, partialOf, type Schemas } from "./client";

/** A GPU whose slow clock holds its job up. */
export interface Straggler extends Pick<Schemas["JobMember"], "gpu" | "name" | "clock_mhz"> {
  readonly job: string;
  /** How many GPUs the job has. */
  readonly count: number;
  /** The median of their clocks. */
  readonly median: number | null;
}

/** The jobs with the slowest GPUs come first: of a large fleet not all are asked for. */
const JOBS_MAX = 50;

/** The stragglers of the last ten minutes, the slowest first, and how many jobs were looked at. */
export function stragglersQuery() {
  return queryOptions({
    queryKey: ["stragglers"],
    queryFn: async ({ signal }) => {
      const answer = await api.GET("/api/v1/analysis/stragglers", { params: { query: { limit: JOBS_MAX } }, signal });
      const { jobs, total } = dataOf(answer);
      const stragglers = jobs.flatMap(({ job, gpus, clock_mhz: spread }) =>
        gpus.flatMap(({ gpu, name, clock_mhz, straggler }): Straggler[] => (straggler ? [{ gpu, name, clock_mhz, job, count: gpus.length, median: spread?.median ?? null }] : [])),
      );
      const share = ({ clock_mhz: clock, median }: Straggler) => (clock === null || median === null ? 1 : clock / median);
      stragglers.sort((a, b) => share(a) - share(b));
      return { stragglers, jobs: total, partial: partialOf(answer) };
    },
    // The server judges as often.
    refetchInterval: MINUTE / 4,
  });
}
