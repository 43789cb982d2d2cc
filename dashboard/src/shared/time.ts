import { useState, useSyncExternalStore } from "react";
import { useInstant } from "./instant";
import { isUtc } from "./zone";

export const SECOND = 1000;
export const MINUTE = 60 * SECOND;
export const HOUR = 60 * MINUTE;
export const DAY = 24 * HOUR;

/** Milliseconds since 1970 of an RFC 3339 instant, or `null` where there is none. */
export function parseInstant(text: string | null | undefined): number | null {
  if (text === null || text === undefined || text === "") return null;
  const instant = Date.parse(text);
  return Number.isNaN(instant) ? null : instant;
}

/** The other way round, in UTC: as files and addresses hold it. */
export function isoOf(instant: number | null): string | null {
  return instant === null ? null : new Date(instant).toISOString();
}

/** `4 s`, `12 min`, `3 h`, `5 d`: the largest unit that is not 0. */
export function formatSpan(ms: number): string {
  const span = Math.max(0, ms);
  if (span < MINUTE) return `${Math.floor(span / SECOND)} s`;
  if (span < HOUR) return `${Math.floor(span / MINUTE)} min`;
  if (span < 2 * DAY) return `${Math.floor(span / HOUR)} h`;
  return `${Math.floor(span / DAY)} d`;
}

export function formatAge(instant: number, now: number): string {
  return now - instant < 2 * SECOND ? "just now" : `${formatSpan(now - instant)} ago`;
}

/** `2 d 4 h`, `3 h 12 min`: an uptime. */
export function formatUptime(seconds: number): string {
  const days = Math.floor(seconds / 86_400);
  const hours = Math.floor((seconds % 86_400) / 3600);
  const minutes = Math.floor((seconds % 3600) / 60);
  if (days > 0) return `${days} d ${hours} h`;
  if (hours > 0) return `${hours} h ${minutes} min`;
  return minutes > 0 ? `${minutes} min ${Math.floor(seconds % 60)} s` : `${Math.floor(seconds)} s`;
}

const two = (part: number) => String(part).padStart(2, "0");

/** `2026-01-02T03:04:05` in the zone in which times are shown: the value of a `datetime-local` field. */
export function toField(instant: number): string {
  const date = new Date(instant);
  if (isUtc()) return date.toISOString().slice(0, 19);
  const day = [date.getFullYear(), two(date.getMonth() + 1), two(date.getDate())].join("-");
  return `${day}T${[date.getHours(), date.getMinutes(), date.getSeconds()].map(two).join(":")}`;
}

/** The instant that stands in such a field; not a number where none does. */
export function parseField(text: string): number {
  return Date.parse(isUtc() ? `${text}Z` : text);
}

export function formatClock(instant: number): string {
  return toField(instant).slice(-8);
}

export function formatDay(instant: number): string {
  return toField(instant).slice(0, -9);
}

/** Date and time; without the date when it is today's. */
export function formatInstant(instant: number, now: number): string {
  const day = formatDay(instant);
  return day === formatDay(now) ? formatClock(instant) : `${day} ${formatClock(instant)}`;
}

/** The present of the page: the chosen instant, or the clock. */
export function useNow(interval: number): number {
  const clock = useClock(interval);
  return useInstant() ?? clock;
}

/** What is told of the present, such as an age: who asks is rendered again only when it is another, not with each tick; unseen, not at all. */
export function usePresent<Told extends string | number | boolean | null>(of: (now: number) => Told, isSeen = true): Told {
  const [clock] = useState(() => clockOf(SECOND));
  const instant = useInstant();
  return useSyncExternalStore(isSeen ? clock.subscribe : unheard, () => of(instant ?? clock.now));
}

const unheard = () => () => undefined;

/** A clock that all who show the time in one interval share: the page is laid out and painted once for all of them. */
interface Clock {
  now: number;
  readonly told: ReadonlySet<() => void>;
  readonly subscribe: (tell: () => void) => () => void;
}

const clocks = new Map<number, Clock>();

function newClock(interval: number): Clock {
  const told = new Set<() => void>();
  let timer: ReturnType<typeof setInterval> | undefined;
  const tick = () => {
    if (document.hidden) return;
    clock.now = Date.now();
    for (const tell of told) tell();
  };
  const subscribe = (tell: () => void) => {
    if (told.size === 0) {
      timer = setInterval(tick, interval);
      // Nobody reads a hidden page: its clocks stand, and go right at once when somebody does again.
      document.addEventListener("visibilitychange", tick);
    }
    told.add(tell);
    return () => {
      told.delete(tell);
      if (told.size > 0) return;
      clearInterval(timer);
      document.removeEventListener("visibilitychange", tick);
    };
  };
  const clock: Clock = { now: Date.now(), told, subscribe };
  return clock;
}

function clockOf(interval: number): Clock {
  const clock = clocks.get(interval) ?? newClock(interval);
  clocks.set(interval, clock);
  const now = Date.now();
  // The other readers of a slow one follow with its next tick.
  if (clock.told.size === 0 || Math.abs(now - clock.now) > SECOND) clock.now = now;
  return clock;
}

/** What the clock says, renewed every `interval` ms, which stays what it first was; components never ask it while they render. */
export function useClock(interval: number): number {
  const [clock] = useState(() => clockOf(interval));
  return useSyncExternalStore(clock.subscribe, () => clock.now);
}
