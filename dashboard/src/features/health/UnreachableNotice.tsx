import { useQueryClient } from "@tanstack/react-query";
import { RotateCw, Unplug } from "lucide-react";
import { useUnreachableSince } from "../../api/reachability";
import { formatAge, formatInstant, SECOND, useClock } from "../../shared/time";

/** Says that nobody answers and since when; what is still on the page is old. Polling goes on and takes the notice away. */
export function UnreachableNotice() {
  const since = useUnreachableSince();
  const client = useQueryClient();
  const now = useClock(SECOND);
  if (since === null) return null;
  return (
    <div role="alert" className="border-b border-bad/40 bg-bad/10">
      <div className="mx-auto flex max-w-[2560px] flex-wrap items-center gap-x-3 gap-y-1 px-3 py-2 text-[13px] sm:px-5">
        <Unplug size={15} className="text-bad" aria-hidden />
        <span>
          <strong className="font-semibold">API unreachable since {formatInstant(since, now)}</strong>
          <span className="text-muted"> ({formatAge(since, now)}). What is shown is what was last read.</span>
        </span>
        <button type="button" className="button ml-auto h-7" onClick={() => void client.refetchQueries({ type: "active" })}>
          <RotateCw size={13} aria-hidden /> Retry now
        </button>
      </div>
    </div>
  );
}
