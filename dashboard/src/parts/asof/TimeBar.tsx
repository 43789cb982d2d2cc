import { useQuery } from "@tanstack/react-query";
import { ChevronLeft, ChevronRight, History } from "lucide-react";
import { useEffect, useRef, useState } from "react";
import { ABOUTS, changedQuery, fitting, happenedQuery, inTime, type About, type Happened, type HappenedFilter } from "../../api/happened";
import { healthQuery, type Span } from "../../api/queries";
import { chooseInstant, useInstant } from "../../shared/instant";
import { Link } from "../../shared/location";
import { DAY, formatInstant, HOUR, MINUTE, parseField, SECOND, toField, useClock } from "../../shared/time";
import { GPU } from "../addresses";
import { SaveCsv } from "../saveCsv";
import { changesCsv, endOf, placeOf, repeatsOf, repeatWords, stepsTo, ticksOf } from "./bar";

const SPANS = { "1h": HOUR, "6h": 6 * HOUR, "24h": DAY, "7d": 7 * DAY, "30d": 30 * DAY } as const;
type SpanName = keyof typeof SPANS;
/** Positions of the handle: about one a pixel. */
const STEPS = 1440;
const DRAG_PAUSE_MS = 150;
/** Lines of the list that are drawn. */
const LISTED_MAX = 200;

interface TimeBarProps {
  /** What of all that happened the page shows. */
  readonly of: HappenedFilter;
  /** What GPUs are called, by id. */
  readonly names: ReadonlyMap<string, string>;
  /** What the page leaves out and the bar cannot, in words; empty: nothing. */
  readonly unfiltered?: string;
}

/** A bar of time with what has happened on it. Dragged, typed or stepped, it shows the page as of another instant. */
export function TimeBar({ of, names, unfiltered = "" }: TimeBarProps) {
  const chosen = useInstant();
  const clock = useClock(10 * SECOND);
  const recordingEnd = endOf(useQuery(healthQuery()).data);
  const [name, setName] = useState<SpanName>("24h");
  const last = recordingEnd ?? Math.floor(clock / MINUTE) * MINUTE + MINUTE;
  const first = Math.min(last - SPANS[name], chosen ?? last);
  const span = { start: first, end: last };
  const happened = useQuery(happenedQuery(span, of, recordingEnd));
  const all = fitting(happened.data?.all ?? [], of);

  const present = chosen ?? last;
  const [dragged, setDragged] = useState<number | null>(null);
  const shown = dragged ?? present;
  const pause = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => () => clearTimeout(pause.current), []);
  const step = (last - first) / STEPS;
  const choose = (at: number) => chooseInstant(at > last - step ? (recordingEnd ?? null) : at);
  const drag = (at: number) => {
    setDragged(at);
    clearTimeout(pause.current);
    pause.current = setTimeout(() => {
      choose(at);
      setDragged(null);
    }, DRAG_PAUSE_MS);
  };
  const { earlier, later } = stepsTo(all, present);

  return (
    <section aria-label="As of when" data-control className="card mb-3 px-3 py-2" data-testid="time-bar">
      <div className="flex flex-wrap items-center gap-x-2 gap-y-1.5">
        <History size={16} className="shrink-0 text-muted" aria-hidden />
        <label className="flex items-center gap-2 text-xs text-muted">
          As of
          <input
            type="datetime-local"
            step={1}
            className="field num h-7! text-[13px]!"
            value={toField(shown)}
            max={toField(clock)}
            onChange={(event) => {
              const at = parseField(event.target.value);
              if (Number.isFinite(at) && at <= clock) chooseInstant(at);
            }}
          />
        </label>
        <Step label="To the change before" at={earlier} icon={ChevronLeft} />
        <Step label="To the change after" at={later} icon={ChevronRight} />
        <div className="relative order-last h-7 min-w-0 flex-1 basis-full sm:order-none sm:basis-40">
          <svg className="pointer-events-none absolute inset-x-2 inset-y-0 h-full w-[calc(100%-1rem)]" viewBox="0 0 1000 28" preserveAspectRatio="none" aria-hidden>
            {ticksOf(all, span).map(({ x, isEnd }) => (
              <rect key={`${x} ${isEnd}`} x={x} y={isEnd ? 18 : 2} width={2} height={isEnd ? 8 : 12} className={isEnd ? "fill-good" : "fill-bad"} />
            ))}
          </svg>
          <input
            type="range"
            aria-label="As of, on the bar of time"
            aria-valuetext={formatInstant(shown, clock)}
            className="absolute inset-0 w-full cursor-pointer accent-accent"
            min={0}
            max={STEPS}
            step={1}
            value={placeOf(shown, span, STEPS)}
            onChange={(event) => drag(first + Number(event.target.value) * step)}
          />
        </div>
        <select aria-label="How far back the bar goes" className="field h-7! py-0! text-xs!" value={name} onChange={(event) => setName(event.target.value as SpanName)}>
          {Object.keys(SPANS).map((each) => (
            <option key={each}>{each}</option>
          ))}
        </select>
        {chosen !== null && (
          <button type="button" className="button h-7!" onClick={() => chooseInstant(recordingEnd === null ? null : "now")}>
            Go to now
          </button>
        )}
        {chosen === null && recordingEnd !== null && (
          <button type="button" className="button h-7!" onClick={() => chooseInstant(recordingEnd)}>
            To the end of the recording
          </button>
        )}
      </div>
      <WhatChanged all={all} span={span} of={of} names={names} present={present} clock={clock} doubt={doubtOf(happened.error, happened.data)} unfiltered={unfiltered} />
    </section>
  );
}

function doubtOf(error: Error | null, data: { readonly isCut: boolean; readonly partial: string | null } | undefined): string {
  if (error !== null) return `What has changed could not be read: ${error.message}`;
  if (data === undefined) return "";
  if (data.partial !== null) return `Some may be missing: ${data.partial}`;
  return data.isCut ? "Only the newest are read." : "";
}

function changedDoubtOf(error: Error | null, data: { readonly left: number; readonly partial: string | null } | undefined): string {
  if (error !== null) return `Which jobs and drivers changed could not be read: ${error.message}`;
  if (data === undefined) return "";
  if (data.partial !== null) return `Some jobs and drivers may be missing: ${data.partial}`;
  return data.left > 0 ? `${data.left.toLocaleString("en")} older changes of jobs and drivers are left out.` : "";
}

interface StepProps {
  readonly label: string;
  /** Null: there is none. */
  readonly at: number | null;
  readonly icon: typeof ChevronLeft;
}

function Step({ label, at, icon: Icon }: StepProps) {
  return (
    <button type="button" className="button quiet square h-7! w-7!" aria-label={label} title={label} disabled={at === null} onClick={() => at !== null && chooseInstant(at)}>
      <Icon size={15} aria-hidden />
    </button>
  );
}

interface WhatChangedProps {
  /** What happened to the health of GPUs in the span, the newest first. */
  readonly all: readonly Happened[];
  readonly span: Span;
  readonly of: HappenedFilter;
  readonly names: ReadonlyMap<string, string>;
  readonly present: number;
  readonly clock: number;
  readonly doubt: string;
  readonly unfiltered: string;
}

const ABOUT_NAMES: Readonly<Record<About, string>> = { health: "Findings and errors", jobs: "Jobs", drivers: "Drivers" };

/** A span of which the end moves each minute is asked for again by the quarter of an hour. */
function quarters({ start, end }: Span): Span {
  const quarter = 15 * MINUTE;
  return { start: Math.floor(start / quarter) * quarter, end: Math.ceil(end / quarter) * quarter };
}

/** What has changed up to the instant: each line leads to its instant and to its GPU. Jobs and drivers are asked for once it is opened. */
function WhatChanged({ all: health, span, of, names, present, clock, doubt, unfiltered }: WhatChangedProps) {
  const [isOpen, setIsOpen] = useState(false);
  const [about, setAbout] = useState<About | "">("");
  const changed = useQuery({ ...changedQuery(quarters(span), of.host), enabled: isOpen });
  const found = inTime(health, isOpen ? fitting(changed.data?.all ?? [], of) : []);
  const all = found.filter((each) => each.shows <= present && (about === "" || each.about === about));
  const missing = changedDoubtOf(changed.error, changed.data);
  return (
    <details className="mt-1 text-xs" onToggle={(event) => setIsOpen(event.currentTarget.open)}>
      <summary className="cursor-pointer text-muted select-none hover:text-fg">
        What changed <span className="num">({all.length.toLocaleString("en")})</span>
        {doubt !== "" && <span className="ml-2 text-warn">{doubt}</span>}
      </summary>
      <p className="mt-1 flex flex-wrap items-center gap-2">
        <select aria-label="What the changes are about" className="field h-7! py-0! text-xs!" value={about} onChange={(event) => setAbout(ABOUTS.find((each) => each === event.target.value) ?? "")}>
          <option value="">Everything</option>
          {ABOUTS.map((each) => (
            <option key={each} value={each}>
              {ABOUT_NAMES[each]}
            </option>
          ))}
        </select>
        <span role="status" className="text-warn">
          {missing}
        </span>
        {unfiltered !== "" && <span className="text-muted">{unfiltered}</span>}
      </p>
      {all.length === 0 ? (
        <p className="py-2 text-muted">Nothing in this time.</p>
      ) : (
        <ol aria-label="What changed, the newest first" className="mt-1 max-h-64 divide-y divide-line overflow-y-auto">
          {repeatsOf(all)
            .slice(0, LISTED_MAX)
            .map((repeat) => {
              const { at, shows, gpu, host, kind, text, isEnd } = repeat.newest;
              const again = repeatWords(repeat);
              return (
                <li key={`${at} ${gpu} ${kind} ${text}`} className="flex flex-wrap items-baseline gap-x-3 py-1">
                  <button type="button" className="num min-h-6 shrink-0 text-accent underline-offset-2 hover:underline" onClick={() => chooseInstant(shows)} aria-current={shows === present}>
                    {formatInstant(at, clock)}
                  </button>
                  <span className={`min-w-0 flex-1 [overflow-wrap:anywhere] ${isEnd ? "text-good" : ""}`}>
                    {text}
                    {again !== "" && <span className="text-muted">{` ${again}, first at ${formatInstant(repeat.since, clock)}`}</span>}
                  </span>
                  <Link to={GPU.to({ id: gpu })} className="min-h-6 text-muted underline-offset-2 hover:underline">
                    {names.get(gpu) ?? (host === null ? gpu : `${host} / ${gpu}`)}
                  </Link>
                </li>
              );
            })}
        </ol>
      )}
      {isOpen && all.length > 0 && <SaveCsv label="What changed" text={() => changesCsv(all)} />}
    </details>
  );
}
