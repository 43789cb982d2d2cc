import { queryOptions, useQuery } from "@tanstack/react-query";
import { X } from "lucide-react";
import { api, dataOf, partialOf, type Schemas } from "../../api/client";
import type { Span } from "../../api/queries";
import { formatNumber, formatValue, metricTitle } from "../../shared/format";
import { formatInstant, MINUTE, parseInstant } from "../../shared/time";
import { Bar } from "../../parts/gpuLook";
import { WHY_MAX_MS } from "../../parts/range";

type Explanation = Schemas["Explanation"];
type Cause = Schemas["CauseEntry"];

/** Whole minutes are explained; a range that moves is asked for anew each minute. */
function explainQuery(gpu: string, span: Span) {
  const end = Math.ceil(span.end / MINUTE) * MINUTE;
  const start = Math.max(Math.floor(span.start / MINUTE) * MINUTE, end - WHY_MAX_MS);
  return queryOptions({
    queryKey: ["explain", gpu, start, end],
    queryFn: async ({ signal }) => {
      const query = { start: new Date(start).toISOString(), end: new Date(end).toISOString() };
      const answer = await api.GET("/api/v1/gpus/{id}/explain", { params: { path: { id: gpu }, query }, signal });
      return { ...dataOf(answer), partial: partialOf(answer) };
    },
    staleTime: MINUTE,
    placeholderData: (held) => held,
  });
}

interface WhySlowProps {
  readonly gpu: string;
  readonly span: Span;
  readonly now: number;
  readonly onClose: () => void;
}

/** What held the GPU up in the range that the charts show, the heaviest first. */
export function WhySlow({ gpu, span, now, onClose }: WhySlowProps) {
  const answer = useQuery(explainQuery(gpu, span));
  const { data } = answer;
  return (
    <section aria-label="Why was it slow?" className="card mb-3 p-3.5 text-[13px]" data-testid="why" aria-busy={answer.isFetching}>
      <div className="flex items-start gap-3">
        <div className="min-w-0 flex-1">
          <h2 className="text-xs text-muted">
            Why was it slow?{" "}
            {data !== undefined && (
              <span className="num">
                {instant(data.start, now)} – {instant(data.end, now)}
              </span>
            )}
          </h2>
          {data === undefined ? (
            answer.isError ? (
              <p className="mt-1 text-warn">{answer.error.message}</p>
            ) : (
              <div role="status" aria-label="Loading the causes" className="waiting mt-2 h-5 w-80" />
            )
          ) : (
            <p className="mt-1 text-[15px] leading-snug font-medium first-letter:uppercase">{data.verdict}</p>
          )}
        </div>
        <button type="button" className="button quiet square" aria-label="Close" onClick={onClose}>
          <X size={15} aria-hidden />
        </button>
      </div>
      {data !== undefined && <Causes explanation={data} now={now} />}
      {span.end - span.start > WHY_MAX_MS && <p className="mt-2 text-xs text-muted">Only the last 24 hours of the range are explained.</p>}
      {data !== undefined && data.partial !== null && <p className="mt-2 text-warn">Not everything could be read: {data.partial}</p>}
    </section>
  );
}

function instant(text: string, now: number): string {
  const at = parseInstant(text);
  return at === null ? text : formatInstant(at, now);
}

function Causes({ explanation, now }: { readonly explanation: Explanation; readonly now: number }) {
  const { causes, peers, events } = explanation;
  return (
    <>
      {causes.length > 0 && (
        <ol className="mt-3 space-y-2.5">
          {causes.map((cause, place) => (
            // Two causes may have the same id.
            <CauseItem key={`${cause.id} ${place}`} cause={cause} />
          ))}
        </ol>
      )}
      {events.length > 0 && (
        <ul aria-label="Events" className="num mt-3 space-y-0.5 text-muted">
          {events.map((event, place) => (
            <li key={place}>
              {instant(event.timestamp, now)} <strong className="font-medium text-fg">{event.kind}</strong> {event.detail}
            </li>
          ))}
        </ul>
      )}
      <p className="mt-3 text-xs text-muted">
        {peers.basis === null ? "There is no other GPU of its job or model to compare it with." : `Compared with ${peers.count} ${peers.count === 1 ? "GPU" : "GPUs"} of ${peers.basis === "job" ? "its job" : "its model"}: ${peers.name ?? ""}.`} A weight is how much of the lost speed a cause can explain: a share of the time, or a
        difference to those. Weights need not add up to 100%.
      </p>
    </>
  );
}

/** What the causes are called. One of a newer server is called by its id. */
const NAMES: Readonly<Record<string, string>> = {
  events: "Events",
  heat: "Heat",
  power_brake: "Power brake",
  power_limit: "Power limit",
  clock: "Lower clock",
  application_clock: "Application clock",
  pcie: "PCIe",
  links: "Links",
  little_work: "Little work",
  low_power: "Low power",
  no_data: "No data",
};

/** How much of the lost speed a cause can explain, in words: a number alone looks more exact than it is. */
function weightWords(weight: number): string {
  if (weight >= 0.5) return "mainly";
  return weight >= 0.15 ? "partly" : "a little";
}

/** A share is said in percent, as the bars and sentences say it. */
function valueWords(value: number | string, unit: string): string {
  return unit === "ratio" && typeof value === "number" ? formatValue(value * 100, "%") : formatValue(value, unit);
}

function CauseItem({ cause }: { readonly cause: Cause }) {
  return (
    <li className="grid gap-x-4 sm:grid-cols-[11rem_minmax(0,1fr)]" data-cause={cause.id}>
      <span className="flex items-center gap-2 sm:block">
        <span className="block leading-snug">
          <strong className="font-semibold">{NAMES[cause.id] ?? metricTitle(cause.id)}</strong>
          <span className="num text-muted">
            {" "}
            {weightWords(cause.weight)}, {formatNumber(cause.weight * 100)}%
          </span>
        </span>
        <Bar share={cause.weight} label="Weight" colour="var(--warn)" />
      </span>
      <span className="min-w-0">
        <span className="block leading-snug first-letter:uppercase">{cause.sentence}</span>
        <span className="num block text-xs text-muted">
          {cause.evidence.map(({ quantity, unit, value, compared_with: other }) => (
            <span key={quantity} className="mr-4 inline-block" title={quantity}>
              {metricTitle(quantity)} {valueWords(value, unit)}
              {other && ` against ${valueWords(other.value, unit)}, ${other.origin}`}
            </span>
          ))}
        </span>
      </span>
    </li>
  );
}
