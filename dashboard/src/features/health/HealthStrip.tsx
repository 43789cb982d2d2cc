import { useQuery } from "@tanstack/react-query";
import { CircleCheck, CircleHelp, CircleX, TriangleAlert, type LucideIcon } from "lucide-react";
import { healthQuery } from "../../api/queries";
import { isStandstill } from "./standstill";
import { useUnreachableSince } from "../../api/reachability";
import { formatAge, formatInstant, MINUTE, parseInstant, SECOND, useClock } from "../../shared/time";

interface Look {
  readonly icon: LucideIcon;
  readonly colour: string;
}

const LOOKS: Readonly<Record<string, Look>> = {
  healthy: { icon: CircleCheck, colour: "text-good" },
  degraded: { icon: TriangleAlert, colour: "text-warn" },
  unhealthy: { icon: CircleX, colour: "text-bad" },
  unreachable: { icon: CircleX, colour: "text-bad" },
};
const UNKNOWN: Look = { icon: CircleHelp, colour: "text-faint" };

interface PartHealth {
  readonly name: string;
  readonly status: string;
  readonly reason: string;
  readonly since: number | null;
}

/** Gateway, queue, collector and store, always in sight: state, and for what is not well the reason and since when. */
export function HealthStrip() {
  const health = useQuery(healthQuery());
  const silentSince = useUnreachableSince();
  const now = useClock(MINUTE);
  const report = health.data;
  const silent = silentSince !== null;
  const part = (name: string, own: { status: string; reason?: string | null; since?: string | null } | undefined): PartHealth =>
    own === undefined || silent
      ? { name, status: "unknown", reason: "", since: null }
      : { name, status: own.status, reason: own.reason ?? "", since: parseInstant(own.since) };
  const parts = [
    // The report's own status is the worst of its parts: a gateway that answers is itself well.
    silent
      ? { name: "Gateway", status: "unreachable", reason: "", since: silentSince }
      : part("Gateway", report === undefined ? undefined : { status: "healthy" }),
    part("Queue", report?.queue),
    part("Collector", report?.collector),
    part("Store", report?.store),
  ];
  const isStill = !silent && isStandstill(report);
  const updated = health.dataUpdatedAt;
  return (
    <section aria-label="Health" className="flex w-full min-w-0 items-center gap-x-3 py-1.5 text-xs md:ml-auto md:w-auto md:flex-1" data-last-update={updated}>
      <ul className="flex min-w-0 flex-1 flex-wrap items-center gap-x-3 gap-y-0.5 md:justify-end lg:flex-nowrap">
        {parts.map((each) => (
          <Part key={each.name} part={each} now={now} isSaid={isStill} />
        ))}
      </ul>
      <span className="num ml-auto shrink-0 whitespace-nowrap text-faint md:ml-0" title="When the health report was last read">
        {updated === 0 ? "not read yet" : <Age at={updated} />}
      </span>
    </section>
  );
}

/** By the clock, also in a look at the past. */
function Age({ at }: { readonly at: number }) {
  return formatAge(at, useClock(SECOND));
}

interface PartProps {
  readonly part: PartHealth;
  readonly now: number;
  /** Whether a notice says what is wrong already. */
  readonly isSaid: boolean;
}

function Part({ part, now, isSaid }: PartProps) {
  const look = LOOKS[part.status] ?? UNKNOWN;
  const since = part.since === null ? "" : ` since ${formatInstant(part.since, now)}`;
  const whole = `${part.name}: ${part.status}${since}${part.reason === "" ? "" : `, ${part.reason}`}`;
  const well = part.status === "healthy";
  return (
    <li className={`flex items-center gap-1 ${well ? "shrink-0" : "min-w-0"}`} title={whole} data-status={part.status}>
      <look.icon size={13} className={`shrink-0 ${look.colour}`} aria-hidden />
      <span className={well ? "text-muted" : "font-medium"}>{part.name}</span>
      {well || isSaid ? (
        <span className="sr-only">{`${part.status}${since}`}</span>
      ) : (
        <span className={`min-w-0 line-clamp-3 break-words [overflow-wrap:anywhere] md:line-clamp-1 ${look.colour}`}>
          {part.status}
          <span className="text-muted">
            {since}
            {part.reason !== "" && ` · ${part.reason}`}
          </span>
        </span>
      )}
    </li>
  );
}
