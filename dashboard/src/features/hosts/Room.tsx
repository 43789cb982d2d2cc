import { useQuery } from "@tanstack/react-query";
import type { Schemas } from "../../api/client";
import { roomQuery } from "../../api/queries";
import { formatNumber } from "../../shared/format";
import { answerDoubts } from "../../parts/findings/doubts";

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

/** `12 of 32 GPUs are free: 8 on 1 whole host, 4 on partly used hosts. Those that are critical, lost or have a warning get no work.` */
function roomWords({ free, busy, unhealthy, whole_nodes: whole, fragmentation }: Schemas["HintTotals"]): string {
  // How many these are stands with each host, by the same judgement as everywhere.
  const unfit = unhealthy === 0 ? "" : " Those that are critical, lost or have a warning get no work.";
  if (free === 0) return `No GPU is free.${unfit}`;
  const scattered = Math.round((fragmentation ?? 0) * free);
  const parts = [
    ...(whole === 0 ? [] : [`${formatNumber(free - scattered)} on ${formatNumber(whole)} whole ${whole === 1 ? "host" : "hosts"}`]),
    ...(scattered === 0 ? [] : [`${formatNumber(scattered)} on partly used hosts`]),
  ];
  const all = free + busy + unhealthy;
  return `${formatNumber(free)} of ${formatNumber(all)} ${all === 1 ? "GPU is" : "GPUs are"} free: ${parts.join(", ")}.${unfit}`;
}
