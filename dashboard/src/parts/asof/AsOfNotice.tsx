import { useQuery } from "@tanstack/react-query";
import { useEffect, useState, type ReactNode } from "react";
import { healthQuery } from "../../api/queries";
import { chooseInstant, isInstantSaid, useInstant, useMisunderstoodInstant } from "../../shared/instant";
import { formatInstant, formatSpan, SECOND, useClock } from "../../shared/time";
import { endOf } from "./bar";

interface AsOfNoticeProps {
  /** Whether the page shows what is now, whatever the instant is. */
  readonly isOfNow: boolean;
}

/** Says on every page as of when the fleet is shown, if not as of now, and whether this page is. A recording opens as of its end. */
export function AsOfNotice({ isOfNow }: AsOfNoticeProps) {
  const chosen = useInstant();
  const wrong = useMisunderstoodInstant();
  // A recording that opens as of its end has another address by then.
  const [told, setTold] = useState(wrong);
  if (wrong !== null && wrong !== told) setTold(wrong);
  const clock = useClock(10 * SECOND);
  const end = endOf(useQuery(healthQuery()).data);
  useEffect(() => {
    if (end !== null && !isInstantSaid()) chooseInstant(end);
  }, [end]);
  const goToNow = () => {
    setTold(null);
    chooseInstant(end === null ? null : "now");
  };
  if (chosen === null) {
    if (wrong === null) return null;
    return (
      <Strip mark="as-of-wrong">
        <span>
          <Wrong said={wrong} /> Everything below is of now.
        </span>
        <ToNow onClick={goToNow} />
      </Strip>
    );
  }
  const instant = (
    <>
      <strong className="num font-semibold">{formatInstant(chosen, clock)}</strong>, {formatSpan(clock - chosen)} ago
      {chosen === end && ": the end of a recording"}
    </>
  );
  return (
    <Strip mark="as-of">
      <span>
        {told !== null && chosen === end && <Wrong said={told} />} {isOfNow ? <>This page is of now. Findings, GPUs and hosts are as of {instant}.</> : <>Everything below is as of {instant}.</>}
      </span>
      <ToNow onClick={goToNow} />
    </Strip>
  );
}

/** What an instant looks like, for those whose address has none. */
function Wrong({ said }: { readonly said: string }) {
  return (
    <>
      <code className="font-mono break-all">at={said}</code> is no instant that this page understands: it understands such as{" "}
      <code className="font-mono">2026-11-20T03:10:00Z</code>, <code className="font-mono">2026-11-20T03:10</code> (in this browser&rsquo;s zone) and <code className="font-mono">now</code>.
    </>
  );
}

function Strip({ mark, children }: { readonly mark: string; readonly children: ReactNode }) {
  return (
    <div role="status" className="border-b border-accent/40 bg-accent/10 px-3 py-1.5 text-[13px] sm:px-5" data-testid={mark}>
      <div className="mx-auto flex max-w-[1680px] flex-wrap items-center gap-x-3 gap-y-1">{children}</div>
    </div>
  );
}

function ToNow({ onClick }: { readonly onClick: () => void }) {
  return (
    <button type="button" className="min-h-6 text-accent underline underline-offset-2" onClick={onClick}>
      Go to now
    </button>
  );
}
