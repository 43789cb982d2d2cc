import { keepPreviousData, queryOptions, useQuery } from "@tanstack/react-query";
import { useMemo, useRef } from "react";
import type { Finding } from "../../api/findings";
import { Glimpse } from "../../charts/Glimpse";
import { useIsSeen } from "../../charts/seen";
import { MINUTE } from "../../shared/time";
import { useGpuMetrics } from "./evidence";
import { askOf, glimpseOf, shownBy, spanAround } from "./shown";
import { fetchCourses, type CoursesAsk } from "./together";

/** Findings that are seen by the same courses share them. Once its time has passed the key stays the same, and nothing is asked again. */
function pictureQuery(ask: CoursesAsk | null) {
  return queryOptions({
    queryKey: ["finding", "picture", ask],
    queryFn: () => (ask === null ? null : fetchCourses(ask)),
    staleTime: 10 * MINUTE,
    placeholderData: keepPreviousData,
  });
}

/** The one chart that shows a finding. A finding without it is still a finding: where it cannot be read, nothing stands here. */
export function FindingChart({ finding, since, now }: { readonly finding: Finding; readonly since: number; readonly now: number }) {
  const box = useRef<HTMLDivElement>(null);
  const metrics = useGpuMetrics();
  const isSeen = useIsSeen(box);
  const { start, end } = spanAround(since, now);
  const shown = useMemo(() => shownBy(finding, metrics), [finding, metrics]);
  const ask = shown === null ? null : askOf(shown, { start, end });
  const { data, isError } = useQuery({ ...pictureQuery(ask), enabled: isSeen && ask !== null });
  const unit = metrics.get(shown?.column ?? "")?.unit ?? "";
  const glimpse = useMemo(() => (data === undefined || data === null || shown === null ? null : glimpseOf(shown, data, unit, since)), [data, shown, unit, since]);
  if (shown === null || isError || (data !== undefined && glimpse === null)) return <div ref={box} />;
  return (
    <div ref={box} className="mt-2.5 min-h-22 max-w-2xl" data-testid="glimpse">
      {glimpse !== null && (
        <>
          <Glimpse {...glimpse.picture} />
          <p className="num mt-1 text-[11px] text-muted sm:pl-17.5" aria-hidden>
            {glimpse.legend.join(" · ")}
          </p>
        </>
      )}
    </div>
  );
}
