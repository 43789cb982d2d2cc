import { CircleDashed, CircleHelp, CirclePlay, Clock, FlaskConical, Info, OctagonAlert, TriangleAlert, Unplug, type LucideIcon } from "lucide-react";
import { useRef, type ReactNode } from "react";
import { useIsSeen } from "../charts/seen";
import { ABSENT, formatValue, shareOf } from "../shared/format";
import { formatAge, formatInstant, formatSpan, usePresent } from "../shared/time";
import { useZone } from "../shared/zone";
import { inSentenceCase } from "./findings/words";
import type { Judgement, Verdict } from "../api/judgement";

/** How a word is drawn: a shape and a word besides its colour. */
export interface Look {
  readonly icon: LucideIcon;
  readonly colour: string;
  readonly meaning: string;
}

export const JUDGEMENT_LOOKS: Readonly<Record<Judgement, Look>> = {
  critical: { icon: OctagonAlert, colour: "text-bad", meaning: "it fails, or its results may be wrong" },
  lost: { icon: Unplug, colour: "text-bad", meaning: "reports nothing any more" },
  unhealthy: { icon: OctagonAlert, colour: "text-bad", meaning: "reports errors; which findings there are is not known" },
  warning: { icon: TriangleAlert, colour: "text-warn", meaning: "needs attention" },
  notice: { icon: Info, colour: "text-calm", meaning: "costs speed or money" },
  unconfirmed: { icon: CircleHelp, colour: "text-muted", meaning: "its last reading shows an error, which must hold for a while before it counts" },
  stale: { icon: Clock, colour: "text-faint", meaning: "has not been heard of lately" },
  unknown: { icon: CircleHelp, colour: "text-faint", meaning: "has told too little" },
  active: { icon: CirclePlay, colour: "text-good", meaning: "works" },
  idle: { icon: CircleDashed, colour: "text-calm", meaning: "has nothing to do" },
};

export function VerdictBadge({ verdict: { word, why } }: { readonly verdict: Verdict }) {
  return <LookBadge look={JUDGEMENT_LOOKS[word]} state={word} text={word} reason={why} />;
}

interface LookBadgeProps {
  readonly look: Look;
  readonly state: string;
  readonly text: string;
  readonly reason: string | null;
}

export function LookBadge({ look, state, text, reason }: LookBadgeProps) {
  return (
    <span className={`badge ${look.colour}`} title={reason ?? look.meaning} data-state={state}>
      <look.icon size={12} aria-hidden />
      {text}
    </span>
  );
}

/** Words that a list explains where they stand. That a GPU is silent since when, it says already. */
const EXPLAINED: ReadonlySet<Judgement> = new Set(["critical", "unhealthy", "warning", "notice", "unconfirmed"]);
const URGENT: ReadonlySet<Judgement> = new Set(["critical", "unhealthy"]);

/** Why something is wrong with a GPU, where it stands in a list. */
export function Reason({ verdict: { word, why } }: { readonly verdict: Verdict }) {
  if (!EXPLAINED.has(word) || why === null) return null;
  return (
    <p className={`mt-1 line-clamp-3 max-w-md text-xs leading-snug [overflow-wrap:anywhere] ${URGENT.has(word) ? "text-bad" : "text-muted"}`} title={why}>
      {inSentenceCase(why, "")}
    </p>
  );
}

export function SimulatedBadge() {
  return (
    <span className="badge text-accent" title="These values are simulated: no GPU measured them">
      <FlaskConical size={11} aria-hidden />
      simulated
    </span>
  );
}

/** Stands above everything as long as anything shown is simulated. */
export function SimulatedBanner({ children }: { readonly children: ReactNode }) {
  return (
    <p role="note" aria-label="Simulated data" className="mb-3 flex items-center gap-2 rounded-lg border border-accent/35 bg-accent/8 px-3 py-1.5 text-[13px]">
      <FlaskConical size={14} className="shrink-0 text-accent" aria-hidden />
      {children}
    </p>
  );
}

interface BarProps {
  readonly share: number | null;
  readonly label: string;
  readonly colour?: string;
}

/** A share of a whole as a thin bar. */
export function Bar({ share, label, colour = "var(--bar)" }: BarProps) {
  const width = share === null ? 0 : Math.min(1, Math.max(0, share)) * 100;
  return (
    <span
      role="meter"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={100}
      {...(share === null ? { "aria-valuetext": "no value" } : { "aria-valuenow": Math.round(width) })}
      className="block h-1 w-full overflow-hidden rounded-full"
      style={{ background: "var(--bar-track)" }}
    >
      <span className="block h-full rounded-full" style={{ width: `${width}%`, background: colour }} />
    </span>
  );
}

const WARM_C = 75;
const HOT_C = 87;

/** Colour of a temperature's bar; the value itself stands beside it in words. */
export function heatColour(celsius: number | null): string {
  if (celsius === null || celsius < WARM_C) return "var(--bar)";
  return celsius < HOT_C ? "var(--warn)" : "var(--bad)";
}

/** A text that is cut where there is no room for it, and can be read then too. */
export function Cut({ text }: { readonly text: string }) {
  return (
    <span className="block truncate" title={text === "" ? undefined : text}>
      {text === "" ? ABSENT : text}
    </span>
  );
}

/** How long something lasts already; it keeps the time by itself. */
export function SpanSince({ at }: { readonly at: number }) {
  return usePresent((now) => formatSpan(now - at));
}

/** How long ago an instant is; it keeps the time by itself while it is seen, so that a list need not be drawn again for it. */
function Ago({ at, isSeen }: { readonly at: number | null; readonly isSeen: boolean }) {
  return usePresent((now) => (at === null ? ABSENT : formatAge(at, now)), isSeen);
}

/** When something was last heard of: everywhere as an age, with the instant in the zone of the page where the pointer rests. */
export function LastSeen({ at }: { readonly at: number | null }) {
  const place = useRef<HTMLSpanElement>(null);
  const isSeen = useIsSeen(place);
  // A row that says the same is not drawn again for another zone.
  const zone = useZone();
  return (
    <span ref={place} title={at === null ? "never seen" : `${formatInstant(at, 0)} ${zone}`}>
      <Ago at={at} isSeen={isSeen} />
    </span>
  );
}

/** A value with its name above it, where no column says it. */
export function Named({ name, children }: { readonly name: string; readonly children: ReactNode }) {
  return (
    <div className="min-w-0">
      <span className="block text-[11px] text-faint">{name}</span>
      {children}
    </div>
  );
}

interface LevelProps extends BarProps {
  readonly text: string;
}

/** A value in words and, where its whole is known, as a bar. */
export function Level({ text, share, ...bar }: LevelProps) {
  return (
    <div className="w-16 min-w-0">
      <span className="num block leading-5">{text}</span>
      {share !== null && <Bar share={share} {...bar} />}
    </div>
  );
}

/** The mean utilization of several GPUs. */
export function MeanUtilization({ mean }: { readonly mean: number | null }) {
  return <Level text={formatValue(mean, "%")} share={shareOf(mean, 100)} label="Mean utilization" />;
}

export function Heat({ celsius }: { readonly celsius: number | null }) {
  return <Level text={formatValue(celsius, "°C")} share={shareOf(celsius, 100)} label="Temperature from 0 to 100 °C" colour={heatColour(celsius)} />;
}

interface AmountProps {
  readonly value: number | null;
  readonly whole: number | null;
  readonly unit: string;
  readonly label: string;
}

/** A value of its whole, both in words, and its share as a bar. */
export function Amount({ value, whole, unit, label }: AmountProps) {
  const share = shareOf(value, whole);
  return (
    <div className="w-fit min-w-36 max-w-full max-lg:min-[761px]:min-w-32">
      <span className="num block truncate leading-5">
        {formatValue(value, unit)}
        {whole !== null && <span className="text-faint"> / {formatValue(whole, unit)}</span>}
      </span>
      {share !== null && <Bar share={share} label={label} />}
    </div>
  );
}

export function MemoryUse({ used, total }: { readonly used: number | null; readonly total: number | null }) {
  return <Amount value={total === 0 ? null : used} whole={total === 0 ? null : total} unit="MiB" label="Memory in use" />;
}
