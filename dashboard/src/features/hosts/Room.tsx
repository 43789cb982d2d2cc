import { useQuery } from "@tanstack/react-query";
import type { Schemas } from "../../api/client";
import { roomQuery } from "../../api/queries";
import { formatNumber } from "../../shared/format";
import { answerDoubts } from "../findings/doubts";

/** How many GPUs of all hosts can take work. */
export function Room() {
  const answer = useQuery(roomQuery());
  const { data, error } = answer;
  if (data === undefined) {
    if (error !== null) return <p className="mb-2 text-[13px] text-warn">Which GPUs are free could not be read: {error.message}</p>;
    return <div role="status" aria-label="Loading free GPUs" className="waiting mb-2 h-5 w-80 max-w-full" />;
  }
  const doubts = answerDoubts(answer);
  return (
    <p className="num mb-2 text-[13px] text-muted" data-testid="room">
      {roomWords(data.totals)} {doubts.length > 0 && <span className="text-warn">{doubts.join(" ")}</span>}
    </p>
  );
}

/** `12 of 32 GPUs are free to schedule: 1 host as a whole, 33% of them on hosts where others are not. 2 should get no work.` */
function roomWords({ free, busy, unhealthy, whole_nodes: whole, fragmentation }: Schemas["HintTotals"]): string {
  const unfit = unhealthy === 0 ? "" : ` ${formatNumber(unhealthy)} should get no work.`;
  if (free === 0) return `No GPU is free to schedule.${unfit}`;
  const parts = [
    ...(whole === 0 ? [] : [whole === 1 ? "1 host as a whole" : `${formatNumber(whole)} hosts as a whole`]),
    ...(fragmentation === null || fragmentation === 0 ? [] : [`${formatNumber(Math.round(fragmentation * 100))}% of them on hosts where others are not`]),
  ];
  const all = free + busy + unhealthy;
  return `${formatNumber(free)} of ${formatNumber(all)} ${all === 1 ? "GPU is" : "GPUs are"} free to schedule${parts.length === 0 ? "" : `: ${parts.join(", ")}`}.${unfit}`;
}
