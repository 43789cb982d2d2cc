import { useQuery } from "@tanstack/react-query";
import { CircleCheck, CircleHelp } from "lucide-react";
import { useMemo } from "react";
import { ALL_FINDINGS, fetchFindingsCsv, findingsQuery, SEVERITIES, type Finding } from "../../api/findings";
import { wholeFleetQuery } from "../../api/fleet";
import { NOW, type NowState } from "../../parts/addresses";
import { useAddress } from "../../shared/address";
import { useInstant } from "../../shared/instant";
import { goTo } from "../../shared/location";
import { useMedia } from "../../shared/media";
import { useShortcuts } from "../../shared/shortcuts";
import { Empty, Failed } from "../../shared/states";
import { useShared } from "../../shared/same";
import { formatClock } from "../../shared/time";
import { answerDoubts, useFindingDoubts } from "../../parts/findings/doubts";
import { FindingItem } from "../../parts/findings/FindingItem";
import { Silences } from "../../parts/findings/Silencing";
import { kindTitle } from "../../parts/findings/words";
import { TimeBar } from "../../parts/asof/TimeBar";
import { NOT_COUNTED } from "../../parts/counts";
import { JUDGEMENT_LOOKS, SimulatedBanner } from "../../parts/gpuLook";
import { ClearFilters, Pages, Select, useListKeys, WaitingRows } from "../../parts/list";
import { pageOf, PAGE_SIZE } from "../../parts/pages";
import { SaveCsv } from "../../parts/saveCsv";
import { Coming } from "./Coming";
import { FleetStrip } from "./FleetStrip";
import { CARDS_MAX, GpuCards } from "./GpuCards";
import { headlineOf, type Headline } from "./headline";
import { Tv } from "./Tv";
import { askOf, happenedOf, hostOf, isFiltered, tally } from "./filters";


/** What is wrong, the worst first, why the program thinks so and what to do; above it every GPU as a cell. */
export function NowPage() {
  const { state, change, pathTo } = useAddress(NOW);
  const instant = useInstant();
  const isNarrow = useMedia("(max-width: 760px)");
  const fleet = useQuery(wholeFleetQuery());
  const all = useQuery(findingsQuery(ALL_FINDINGS));
  const list = useQuery(findingsQuery(askOf(state)));
  const judgedDoubts = useFindingDoubts(all);
  const called = useShared(useMemo(() => fleet.data?.gpus.map(({ id, name, index }) => ({ id, name, index })), [fleet.data]));
  const indices = useMemo(() => new Map(called?.map((gpu) => [gpu.id, gpu.index])), [called]);
  const names = useMemo(() => new Map(called?.map((gpu) => [gpu.id, gpu.name])), [called]);
  const findings = list.data?.findings ?? [];
  const { shown, page, hasNext } = pageOf(findings, state.page);
  const paging = { page, hasNext, pathOf: (other: number) => pathTo({ page: other }) };
  useListKeys(paging);
  useShortcuts({ Escape: () => state.tv && change({ tv: false }) });

  // An answer without GPUs yet is no doubt: it has no counts either.
  const doubts = [...judgedDoubts, ...answerDoubts(fleet)];
  const headline =
    all.data === undefined
      ? null
      : headlineOf({
          findings: all.data.findings,
          found: all.data.total,
          counts: fleet.data?.counts ?? NOT_COUNTED,
          doubts,
          isPast: instant !== null,
        });
  const simulated = fleet.data?.simulated ?? 0;
  // On a phone what is wrong stands before the map.
  const isLast = isNarrow && findings.length > 0 && !state.tv;
  const strip = <FleetStrip fleet={fleet} />;
  return (
    <div data-testid="now" data-last-update={list.dataUpdatedAt}>
      {simulated > 0 && (
        <SimulatedBanner>
          {simulated === fleet.data?.gpus.length
            ? "These GPUs are simulated: their values were made up by gpuvitals, not measured."
            : "Some of these GPUs are simulated: their values were made up by gpuvitals, not measured. They carry a badge."}
        </SimulatedBanner>
      )}
      {headline !== null && <Head headline={headline} />}
      {!state.tv && <TimeBar of={happenedOf(state)} names={names} unfiltered={state.severity === "" ? "" : "How severe a finding was is not kept with its events: these are of every severity."} />}
      <Silences />
      {!isLast && strip}
      {state.tv && <Tv findings={findings} indices={indices} names={names} />}
      {state.tv ? null : list.data === undefined ? (
        <div className="mt-3">
          {list.isError ? <Failed what="What is wrong" error={list.error} retry={() => void list.refetch()} /> : <WaitingRows label="Loading findings" rows={6} />}
        </div>
      ) : (
        <>
          {(isFiltered(state) || (all.data?.findings.length ?? 0) > 0) && (
            <Filters state={state} findings={all.data?.findings ?? []} change={change} status={statusOf(list.data, list.isError, list.dataUpdatedAt)} />
          )}
          {findings.length === 0 && isFiltered(state) && (
            <Empty title="No finding fits these filters">
              <button type="button" className="button mt-3" onClick={() => goTo(NOW.path)}>
                Show all findings
              </button>
            </Empty>
          )}
          <ul aria-label="Findings, the worst first" className={`grid gap-2 min-[2000px]:grid-cols-2 ${list.isPlaceholderData ? "opacity-60" : ""}`}>
            {shown.map((finding) => (
              <FindingItem key={finding.id} finding={finding} index={indices.get(finding.subject.id) ?? null} names={names} />
            ))}
          </ul>
          {findings.length > 0 && <SaveCsv label="Findings" text={() => fetchFindingsCsv(askOf(state))} />}
          <Pages {...paging} size={PAGE_SIZE} total={findings.length} />
          {list.data.total > findings.length && (
            <p className="mt-2 text-right text-xs text-muted">
              These are the worst {findings.length.toLocaleString("en")} of {list.data.total.toLocaleString("en")}. Filters narrow them down.
            </p>
          )}
        </>
      )}
      {isLast && <div className="mt-3">{strip}</div>}
      {fleet.data !== undefined && fleet.data.total > 0 && fleet.data.total <= CARDS_MAX && <GpuCards />}
      {!state.tv && <Coming isItsTurn={list.isFetched && fleet.isFetched} />}
    </div>
  );
}

const MOODS = {
  well: { icon: CircleCheck, colour: "text-good" },
  unclear: { icon: CircleHelp, colour: "text-warn" },
  critical: JUDGEMENT_LOOKS.critical,
  warning: JUDGEMENT_LOOKS.warning,
  notice: JUDGEMENT_LOOKS.notice,
} as const;

function Head({ headline }: { readonly headline: Headline }) {
  const { icon: Icon, colour } = MOODS[headline.mood];
  return (
    <div className="mb-3 flex items-start gap-2.5" data-mood={headline.mood}>
      <Icon size={22} className={`mt-0.5 shrink-0 ${colour}`} aria-hidden />
      <div className="min-w-0">
        <h1 className="text-xl leading-7 font-semibold tracking-tight">{headline.text}</h1>
        {headline.more !== "" && (
          <p role="note" aria-label="About this" className={`text-[13px] ${headline.mood === "well" ? "text-muted" : "text-warn"}`}>
            {headline.more}
          </p>
        )}
      </div>
    </div>
  );
}

function statusOf(data: { readonly total: number }, isError: boolean, at: number): string {
  if (isError) return `Not renewed: as of ${formatClock(at)}`;
  return `${data.total.toLocaleString("en")} ${data.total === 1 ? "finding" : "findings"}`;
}

interface FiltersProps {
  readonly state: NowState;
  /** All findings, for what can be chosen. */
  readonly findings: readonly Finding[];
  readonly change: (part: Partial<NowState>) => void;
  readonly status: string;
}

function Filters({ state, findings, change, status }: FiltersProps) {
  const options = (of: (finding: Finding) => string | null, title = (name: string) => name) =>
    tally(findings, of).map(([name, count]) => [name, `${title(name)} (${count.toLocaleString("en")})`] as const);
  const severities = new Map(options((finding) => finding.severity));
  return (
    <div className="mt-3 mb-2 flex flex-wrap items-center gap-2" role="search" aria-label="Filters of the findings">
      <Select
        label="Severity"
        value={state.severity}
        all="All severities"
        options={SEVERITIES.map((severity) => [severity, severities.get(severity) ?? severity] as const)}
        onChange={(severity) => change({ severity })}
        className="sm:w-40"
      />
      <Select label="Kind" value={state.kind} all="All kinds" options={options((finding) => finding.kind, kindTitle)} onChange={(kind) => change({ kind })} />
      <Select label="Node" value={state.host} all="All nodes" options={options(hostOf)} onChange={(host) => change({ host })} />
      <Select label="Namespace" value={state.namespace} all="All namespaces" options={options((finding) => finding.reach.namespace)} onChange={(namespace) => change({ namespace })} />
      {isFiltered(state) && <ClearFilters onClick={() => goTo(NOW.path)} />}
      <p role="status" className="num ml-auto text-xs text-muted">
        {status}
      </p>
    </div>
  );
}
