import { useQuery } from "@tanstack/react-query";
import { OctagonAlert } from "lucide-react";
import { healthQuery, hostsQuery } from "../../api/queries";
import { useUnreachableSince } from "../../api/reachability";
import { formatAge, formatInstant, parseInstant, SECOND, useNow } from "../../shared/time";
import { isStandstill } from "./standstill";

/** Says once, where collectors and queue are all dead, what it means: everything that is shown is as old as the newest row. */
export function StandstillNotice() {
  const isReached = useUnreachableSince() === null;
  const { data: isStill } = useQuery({ ...healthQuery(), select: isStandstill });
  return isReached && isStill === true ? <Notice /> : null;
}

function Notice() {
  const now = useNow(SECOND);
  const hosts = useQuery(hostsQuery());
  const seen = (hosts.data?.hosts ?? []).reduce((most, host) => Math.max(most, parseInstant(host.last_seen) ?? 0), 0);
  return (
    <div role="alert" className="border-b border-bad/40 bg-bad/10" data-testid="standstill">
      <div className="mx-auto flex max-w-[2560px] items-center gap-x-3 px-3 py-2 text-[13px] sm:px-5">
        <OctagonAlert size={15} className="shrink-0 text-bad" aria-hidden />
        <p>
          <strong className="font-semibold">No collector and no queue works or is reached: nothing new arrives.</strong>
          {seen > 0 && (
            <span className="text-muted">
              {" "}
              Everything below is as of {formatInstant(seen, now)} ({formatAge(seen, now)}).
            </span>
          )}
        </p>
      </div>
    </div>
  );
}
