import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import type { Stats } from "../../api/client";
import { statsQuery } from "../../api/queries";
import { ABSENT, capital, formatNumber } from "../../shared/format";
import { Failed } from "../../shared/states";
import { formatUptime } from "../../shared/time";
import { Tile, TILES, WaitingTiles } from "../tiles";
import { perSecond, type Reading } from "./rate";

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** What queue and gateway have done since they started. */
export function StatisticsPage() {
  const stats = useQuery(statsQuery());
  const rate = useRate(stats.data, stats.dataUpdatedAt);
  if (stats.data === undefined) {
    if (stats.error !== null) return <Failed what="The statistics" error={stats.error} retry={() => void stats.refetch()} />;
    return <WaitingTiles label="Loading statistics" />;
  }
  const { total_processed: total, uptime_seconds: uptime, gateway, topics } = stats.data;
  return (
    <div className="space-y-4">
      <h1 className="text-base font-semibold">Statistics</h1>
      <dl className={TILES}>
        <Tile name="Messages processed" value={total === null ? ABSENT : WHOLE.format(total)} />
        <Tile name="Processed per second" value={rate === null ? ABSENT : formatNumber(rate)} />
        <Tile name="Queue uptime" value={uptime === null ? ABSENT : formatUptime(uptime)} />
        <Tile name="Cache hit rate" value={hitRate(gateway.cache_hit_rate)} />
        <Tile name="API requests" value={WHOLE.format(gateway.requests)} />
        <Tile name="Gateway uptime" value={formatUptime(gateway.uptime_seconds)} />
      </dl>
      <section className="card overflow-x-auto" aria-label="Topics of the queue">
        <Topics topics={topics} />
      </section>
    </div>
  );
}

function Topics({ topics }: { readonly topics: Stats["topics"] }) {
  if (topics === null) return <p className="p-4 text-muted">The queue is elsewhere, and its statistics are not known here.</p>;
  const names = Object.keys(topics).sort();
  if (names.length === 0) return <p className="p-4 text-muted">The queue has no topics yet.</p>;
  return <TopicTable names={names} topics={topics} />;
}

/** What the queue's names do not say by themselves; the others are shown as they are. */
const TOPIC_TITLES: Readonly<Record<string, string>> = {
  messages: "Held now",
  bytes: "Bytes held",
  frames: "Frames held",
  published: "Published in all",
  acked: "Processed in all",
  throughput_msg_per_sec: "Published per second",
  acked_msg_per_sec: "Processed per second",
};

function topicTitle(column: string): string {
  return TOPIC_TITLES[column] ?? capital(column.replaceAll("_", " "));
}

function hitRate(rate: number | null | undefined): string {
  return typeof rate === "number" ? `${formatNumber(rate * 100)}%` : ABSENT;
}

/** The rate between the last two readings, kept in state because a render must not depend on how often it runs. */
function useRate(stats: Stats | undefined, at: number): number | null {
  const [held, setHeld] = useState<{ last: Reading; rate: number | null } | null>(null);
  if (typeof stats?.total_processed === "number" && held?.last.at !== at) {
    const last = { at, count: stats.total_processed };
    setHeld({ last, rate: perSecond(held?.last ?? null, last) });
  }
  return held?.rate ?? null;
}

function TopicTable({ names, topics }: { readonly names: readonly string[]; readonly topics: NonNullable<Stats["topics"]> }) {
  const numbers = (name: string) => {
    const topic: Readonly<Record<string, unknown>> = topics[name] ?? {};
    return Object.entries(topic).filter((entry): entry is [string, number] => typeof entry[1] === "number");
  };
  const columns = [...new Set(names.flatMap((name) => numbers(name).map(([column]) => column)))];
  return (
    <table className="w-full text-[13px]">
      <thead>
        <tr className="border-b border-line text-left text-xs text-muted">
          <th className="px-3.5 py-2 font-medium">Topic</th>
          {columns.map((column) => (
            <th key={column} className="px-3.5 py-2 text-right font-medium whitespace-nowrap">
              {topicTitle(column)}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {names.map((name) => {
          const held = new Map(numbers(name));
          return (
            <tr key={name} className="border-b border-line last:border-0">
              <th scope="row" className="px-3.5 py-2 text-left font-medium">
                {name}
              </th>
              {columns.map((column) => {
                const value = held.get(column);
                return (
                  <td key={column} className="num px-3.5 py-2 text-right">
                    {value === undefined ? ABSENT : formatNumber(value)}
                  </td>
                );
              })}
            </tr>
          );
        })}
      </tbody>
    </table>
  );
}
