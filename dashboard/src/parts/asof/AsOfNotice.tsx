import { useQuery } from "@tanstack/react-query";
import { useEffect } from "react";
import { healthQuery } from "../../api/queries";
import { chooseInstant, isInstantSaid, useInstant } from "../../shared/instant";
import { formatInstant, formatSpan, SECOND, useClock } from "../../shared/time";
import { endOf } from "./bar";

/** Says on every page that it shows another instant than now. A recording opens as of its end. */
export function AsOfNotice() {
  const chosen = useInstant();
  const clock = useClock(10 * SECOND);
  const end = endOf(useQuery(healthQuery()).data);
  useEffect(() => {
    if (end !== null && !isInstantSaid()) chooseInstant(end);
  }, [end]);
  if (chosen === null) return null;
  const isEnd = chosen === end;
  return (
    <div role="status" className="border-b border-accent/40 bg-accent/10 px-3 py-1.5 text-[13px] sm:px-5" data-testid="as-of">
      <div className="mx-auto flex max-w-[1680px] flex-wrap items-center gap-x-3 gap-y-1">
        <span>
          Everything below is as of <strong className="num font-semibold">{formatInstant(chosen, clock)}</strong>, {formatSpan(clock - chosen)} ago
          {isEnd && ": the end of a recording"}.
        </span>
        <button type="button" className="text-accent underline underline-offset-2" onClick={() => chooseInstant(end === null ? null : "now")}>
          Go to now
        </button>
      </div>
    </div>
  );
}
