import type { DeadLetter, GroupStats, QueueStats, TopicStats } from "../../api/queue";
import { formatNumber } from "../../shared/format";
import { formatSpan, MINUTE, SECOND } from "../../shared/time";

const DEAD = ".dead";
/** Rows that have waited longer than this are late: the collector stores within a second. */
const LATE_MS = MINUTE;

export interface Topic {
  readonly name: string;
  readonly stats: TopicStats;
  /** The dead letters that are kept: letters and the rows in them. */
  readonly letters: number;
  readonly deadRows: number;
}

/** The topics by name. Dead letters are a topic of their own in the broker, and here a part of the one they come from. */
export function topicsOf(stats: QueueStats): Topic[] {
  const names = Object.keys(stats.topics).sort();
  const isDead = (name: string) => name.endsWith(DEAD) && Object.hasOwn(stats.topics, name.slice(0, -DEAD.length));
  return names.flatMap((name) => {
    const own = stats.topics[name];
    if (own === undefined || isDead(name)) return [];
    const dead = stats.topics[name + DEAD];
    return [{ name, stats: own, letters: dead?.frames ?? 0, deadRows: own.dead_letters }];
  });
}

export type Mood = "good" | "warn" | "bad";

export interface Verdict {
  readonly mood: Mood;
  readonly text: string;
}

/** Why the rows of a group are late, or that they are not. */
export function verdictOf(group: GroupStats): Verdict {
  const { lag, members, waiting, oldest_unacked_seconds: oldest } = group;
  if (lag === 0) return { mood: "good", text: "everything is acknowledged" };
  const waited = oldest === undefined ? "" : `; the oldest has waited ${formatSpan(oldest * SECOND)}`;
  if (members === 0) return { mood: "bad", text: `no consumer: ${rows(lag)} wait${waited}` };
  if (waiting > 0) return { mood: "warn", text: `${rows(waiting)} failed and will be delivered again${waited}` };
  if (oldest !== undefined && oldest * SECOND >= LATE_MS) return { mood: "warn", text: `${rows(lag)} behind${waited}` };
  return { mood: "good", text: "keeps up" };
}

/** What a topic itself has lost or refused since the broker started; nothing if all is well. */
export function lossesOf({ stats }: Topic): Verdict[] {
  const losses: Verdict[] = [];
  if (stats.refused > 0) losses.push({ mood: "warn", text: `${rows(stats.refused)} refused because the topic was full; publishers send them again` });
  if (stats.dropped > 0) losses.push({ mood: "bad", text: `${rows(stats.dropped)} dropped` });
  if (stats.dead_dropped > 0) losses.push({ mood: "bad", text: `${rows(stats.dead_dropped)} of dead letters dropped at their bound` });
  return losses;
}

export interface Reason {
  readonly reason: string;
  readonly letters: number;
  readonly rows: number;
}

/** Why letters died, the reason of most rows first. */
export function reasonsOf(letters: readonly DeadLetter[]): Reason[] {
  const reasons = new Map<string, Reason>();
  for (const { reason, messages_count: count } of letters) {
    const held = reasons.get(reason);
    reasons.set(reason, { reason, letters: (held?.letters ?? 0) + 1, rows: (held?.rows ?? 0) + count });
  }
  return [...reasons.values()].sort((a, b) => b.rows - a.rows);
}

export function rows(count: number): string {
  return count === 1 ? "1 row" : `${formatNumber(count)} rows`;
}

export function letters(count: number): string {
  return count === 1 ? "1 dead letter" : `${formatNumber(count)} dead letters`;
}
