import { ArrowRight } from "lucide-react";
import { Fragment, memo } from "react";
import type { Metric } from "../../api/client";
import type { Evidence, Finding } from "../../api/findings";
import { Link } from "../../shared/location";
import { formatInstant, MINUTE, parseInstant, useNow } from "../../shared/time";
import { useZone } from "../../shared/zone";
import { Command } from "../copy";
import { SimulatedBadge, SpanSince } from "../gpuLook";
import { FindingChart } from "./FindingChart";
import { FindingIncidents } from "./FindingIncidents";
import { evidenceWords, useGpuMetrics } from "./evidence";
import { NAMED_MAX } from "./names";
import { SeverityBadge, severityLook } from "./severity";
import { FindingSilence } from "./Silencing";
import { besideOf, gpuSince, hostPath, inSentenceCase, kindTitle, pathOf, piecesOf, reachWords } from "./words";

interface FindingItemProps {
  readonly finding: Finding;
  /** Number of the GPU on its node, for the commands; null where it is not known. */
  readonly index: number | null;
  /** On the page of the GPU that it is about there is no way to that page. */
  readonly isHere?: boolean;
  /** What GPUs are called, by id; one that is not known is told by its id. */
  readonly names?: ReadonlyMap<string, string>;
}

const NO_NAMES: ReadonlyMap<string, string> = new Map();

/** What is wrong, since when, why the program thinks so, whom it concerns and what to do. Drawn again when it is another, and for its links and its picture each minute. */
export const FindingItem = memo(function FindingItem({ finding, index, isHere = false, names = NO_NAMES }: FindingItemProps) {
  const now = useNow(MINUTE);
  // Its times are those of the zone.
  useZone();
  const since = parseInstant(finding.since);
  const path = pathOf(finding, since, now);
  const metrics = useGpuMetrics();
  return (
    <li
      className="card relative grid gap-x-6 gap-y-3 overflow-hidden p-3 pl-4 text-[13px] focus-within:border-accent/60 lg:grid-cols-[minmax(0,3fr)_minmax(0,2fr)]"
      data-finding={finding.id}
      data-kind={finding.kind}
      data-silenced={finding.silenced ? "" : undefined}
      aria-label={`${finding.severity}: ${finding.subject.name}: ${finding.sentence}`}
    >
      <span aria-hidden className={`absolute inset-y-0 left-0 w-1 bg-current ${severityLook(finding.severity).colour}`} />
      <div className="min-w-0">
        <div className="flex flex-wrap items-center gap-x-2 gap-y-1">
          <SeverityBadge severity={finding.severity} />
          {isHere ? (
            <span className="text-muted" title={finding.meaning}>
              {kindTitle(finding.kind)}
            </span>
          ) : (
            <Link to={path} data-row="" className="group inline-flex items-center gap-1 rounded font-semibold hover:underline" title="Look at it from before it began">
              {finding.subject.name}
              <ArrowRight size={13} className="text-faint group-hover:text-fg" aria-hidden />
            </Link>
          )}
          {finding.simulated && <SimulatedBadge />}
          {since !== null && (
            <span className="num ml-auto whitespace-nowrap text-muted" title={`${formatInstant(since, now)} (${new Date(since).toISOString()})`}>
              for {finding.since_at_least && "at least "}
              <SpanSince at={since} />
            </span>
          )}
        </div>
        <p className="mt-1.5 text-[15px] leading-snug font-medium">{inSentenceCase(finding.sentence, finding.subject.name)}</p>
        {finding.evidence.length > 0 && (
          <ul aria-label="Evidence" className="mt-2 flex flex-wrap gap-1.5">
            {finding.evidence.map((evidence) => (
              <EvidenceChip key={evidence.quantity} evidence={evidence} metrics={metrics} />
            ))}
          </ul>
        )}
        {!isHere && since !== null && <FindingChart finding={finding} since={since} now={now} />}
        <Reach finding={finding} names={names} since={since} now={now} />
      </div>
      <div className="min-w-0 border-line lg:border-l lg:pl-6">
        <h2 className="text-[11px] text-faint">What to do</h2>
        <NextStep step={finding.next_step} index={index} />
        {!isHere && <p className="mt-2 text-xs text-faint">{finding.meaning}</p>}
        <FindingIncidents finding={finding} names={names} />
        <FindingSilence finding={finding} />
      </div>
    </li>
  );
});

/** A value that shows a finding, and what it is compared with. */
function EvidenceChip({ evidence, metrics }: { readonly evidence: Evidence; readonly metrics: ReadonlyMap<string, Metric> }) {
  const { quantity } = evidence;
  const { name, value, beside } = evidenceWords(evidence, metrics);
  return (
    <li className="num rounded-md border border-line bg-raised px-2 py-0.5" title={quantity} data-evidence={quantity}>
      {name !== "" && <span className="text-muted">{name} </span>}
      <strong className="font-semibold">{value}</strong>
      {beside !== "" && <span className="text-muted"> {beside}</span>}
    </li>
  );
}

interface ReachProps {
  readonly finding: Finding;
  readonly names: ReadonlyMap<string, string>;
  readonly since: number | null;
  readonly now: number;
}

/** Whom it concerns. */
function Reach({ finding, names, since, now }: ReachProps) {
  const { reach, subject } = finding;
  const facts = [
    ["Cluster", reach.cluster],
    ["Namespace", reach.namespace],
    ["Job", reach.job],
    ["Pod", reach.pod === reach.job ? null : reach.pod],
  ] as const;
  const beside = besideOf(finding);
  const several = subject.type !== "gpu" && reach.gpus.length > 0;
  const more = reach.gpu_count - Math.min(reach.gpus.length, NAMED_MAX);
  return (
    <dl aria-label="Whom it concerns" className="mt-2 flex flex-wrap gap-x-4 gap-y-0.5 text-muted">
      {reach.hostname !== null && (
        <Fact name="Node">
          <Link to={hostPath(reach.hostname)} className="rounded underline-offset-2 hover:underline" title="This host">
            {reach.hostname}
          </Link>
        </Fact>
      )}
      {facts.map(([name, value]) => value !== null && <Fact key={name} name={name}>{value}</Fact>)}
      <Fact name="Reach">{reachWords(finding)}</Fact>
      {several && (
        <Fact name="GPUs">
          {reach.gpus.slice(0, NAMED_MAX).map((gpu, place) => (
            <Fragment key={gpu}>
              {place > 0 && ", "}
              <Link to={gpuSince(gpu, since, now)} title={gpu} className={`rounded underline-offset-2 hover:underline ${names.has(gpu) ? "" : "font-mono text-xs break-all"}`}>
                {names.get(gpu) ?? gpu}
              </Link>
            </Fragment>
          ))}
          {more > 0 && ` and ${more.toLocaleString("en")} more`}
        </Fact>
      )}
      {beside !== null && (
        <Fact name="Compare with">
          <Link to={beside.path} className="rounded text-accent underline-offset-2 hover:underline">
            {beside.text}
          </Link>
        </Fact>
      )}
    </dl>
  );
}

function Fact({ name, children }: { readonly name: string; readonly children: React.ReactNode }) {
  return (
    <div className="flex min-w-0 items-baseline gap-1.5">
      <dt className="text-xs text-faint">{name}</dt>
      <dd className="min-w-0 break-words [overflow-wrap:anywhere]">{children}</dd>
    </div>
  );
}

function NextStep({ step, index }: { readonly step: string; readonly index: number | null }) {
  return (
    <p className="mt-0.5 leading-relaxed">
      {piecesOf(step, index).map((piece, place) =>
        piece.isCommand ? (
          <Command key={place} text={piece.text} />
        ) : (
          <Fragment key={place}>{piece.text}</Fragment>
        ),
      )}
    </p>
  );
}
