import { useQuery } from "@tanstack/react-query";
import { CircleCheck, CircleX, TriangleAlert } from "lucide-react";
import { useMemo } from "react";
import { healthQuery } from "../../api/queries";
import { hasNoBroker, needsToken, queueQuery, type GroupStats } from "../../api/queue";
import { ABSENT, formatNumber, formatValue } from "../../shared/format";
import { useAddress } from "../../shared/address";
import { goTo, Link } from "../../shared/location";
import { Empty, Failed } from "../../shared/states";
import { formatAge, formatSpan, formatUptime, SECOND, useClock } from "../../shared/time";
import { List, type Column, type ListOf } from "../../parts/columns";
import { WaitingRows } from "../../parts/list";
import { TokenForm } from "../../parts/TokenForm";
import { QUEUE } from "./address";
import { DeadLetters } from "./DeadLetters";
import { letters, lossesOf, rows, topicsOf, verdictOf, type Mood, type Topic, type Verdict } from "./topics";

const MOODS: Readonly<Record<Mood, { readonly icon: typeof CircleCheck; readonly colour: string }>> = {
  good: { icon: CircleCheck, colour: "text-good" },
  warn: { icon: TriangleAlert, colour: "text-warn" },
  bad: { icon: CircleX, colour: "text-bad" },
};

/** Address of a queue without one. */
const IN_PROCESS = "inproc:";

/** The queue between what is measured and what is stored: what waits, for whom, since when, and what could not be delivered. */
export function QueuePage() {
  const queue = useQuery(queueQuery());
  const health = useQuery(healthQuery());
  const { state } = useAddress(QUEUE);
  const address = health.data?.queues.map(({ name }) => (name === IN_PROCESS ? "in the process of the gateway" : name)).join(", ") ?? "";
  const { data, error } = queue;
  return (
    <div className="space-y-4" data-testid="queue">
      <header className="flex flex-wrap items-baseline gap-x-3">
        <h1 className="text-base font-semibold">Queue</h1>
        <p className="text-[13px] text-muted">
          {address}
          {data !== undefined && `${address === "" ? "" : ", "}up for ${formatUptime(data.uptime_seconds)}`}
        </p>
      </header>
      {error !== null && data !== undefined && <Stale at={queue.dataUpdatedAt} reason={error.message} />}
      {data === undefined ? (
        <Missing error={error} retry={() => void queue.refetch()} />
      ) : (
        <Topics topics={topicsOf(data)} open={state.dead} from={state.from} />
      )}
    </div>
  );
}

/** Why nothing of the queue can be shown. */
function Missing({ error, retry }: { readonly error: Error | null; readonly retry: () => void }) {
  if (error === null) return <WaitingRows label="Loading the queue" rows={4} />;
  if (hasNoBroker(error)) {
    return (
      <Empty title="This queue cannot be shown here">
        <p>{error.message}</p>
      </Empty>
    );
  }
  if (needsToken(error)) {
    return (
      <div role="alert" className="card p-4">
        <TokenForm why={`The queue does not let this page in: ${error.message}.`} />
      </div>
    );
  }
  return <Failed what="The queue" error={error} retry={retry} />;
}

function Stale({ at, reason }: { readonly at: number; readonly reason: string }) {
  const now = useClock(SECOND);
  return (
    <p role="alert" className="card flex flex-wrap gap-x-2 border-warn! px-3.5 py-2 text-[13px]">
      <span className="font-medium text-warn">The queue does not answer.</span>
      <span className="text-muted">
        This is as of {formatAge(at, now)}. {reason}
      </span>
    </p>
  );
}

interface TopicsProps {
  readonly topics: readonly Topic[];
  /** Whose dead letters are shown, from which id on. */
  readonly open: string;
  readonly from: number;
}

function Topics({ topics, open, from }: TopicsProps) {
  if (topics.length === 0) return <Empty title="The queue has no topics yet">The first message that is published makes one.</Empty>;
  return topics.map((topic) => <TopicCard key={topic.name} topic={topic} isOpen={topic.name === open} from={from} />);
}

function TopicCard({ topic, isOpen, from }: { readonly topic: Topic; readonly isOpen: boolean; readonly from: number }) {
  const { name, stats } = topic;
  const at = (from: number) => QUEUE.to({ dead: name, from });
  const figures: readonly (readonly [string, string])[] = [
    ["Held now", `${rows(stats.messages)}, ${formatValue(stats.bytes, "B")}`],
    ["Published", `${formatNumber(stats.throughput_msg_per_sec)} rows/s`],
    ["Acknowledged", `${formatNumber(stats.acked_msg_per_sec)} rows/s`],
    ["Published in all", formatNumber(stats.published)],
    ["Delivered again", formatNumber(stats.redelivered)],
    ["Repeats recognised", formatNumber(stats.duplicates)],
  ];
  return (
    <section className="card" aria-label={`Topic ${name}`} data-topic={name}>
      <h2 className="border-b border-line px-3.5 py-2.5 font-medium">{name}</h2>
      <dl className="grid grid-cols-2 gap-x-4 gap-y-2 px-3.5 py-3 sm:grid-cols-3 xl:grid-cols-6">
        {figures.map(([title, value]) => (
          <div key={title}>
            <dt className="text-xs text-muted">{title}</dt>
            <dd className="num text-[13px] font-medium">{value}</dd>
          </div>
        ))}
      </dl>
      <Losses losses={lossesOf(topic)} />
      <Groups topic={topic} />
      <div className="border-t border-line px-3.5 py-3">
        {topic.letters === 0 && !isOpen ? (
          <p className="text-[13px] text-muted">No dead letters.</p>
        ) : isOpen ? (
          <>
            <Link to={QUEUE.path} className="mb-2 inline-block text-[13px] text-accent underline-offset-2 hover:underline">
              Hide dead letters
            </Link>
            <DeadLetters topic={topic} from={from} onTurn={(first) => goTo(at(first))} />
          </>
        ) : (
          <p className="flex flex-wrap items-center gap-2 text-[13px]">
            <TriangleAlert size={14} className="text-warn" aria-hidden />
            {letters(topic.letters)} with {rows(topic.deadRows)} could not be delivered.
            <Link to={at(0)} className="button">
              Look at them
            </Link>
          </p>
        )}
      </div>
    </section>
  );
}

function Losses({ losses }: { readonly losses: readonly Verdict[] }) {
  if (losses.length === 0) return null;
  return (
    <ul className="space-y-1 border-t border-line px-3.5 py-2 text-[13px]">
      {losses.map((loss) => (
        <li key={loss.text}>
          <Said verdict={loss} />
        </li>
      ))}
    </ul>
  );
}

function Said({ verdict: { mood, text } }: { readonly verdict: Verdict }) {
  const { icon: Icon, colour } = MOODS[mood];
  return (
    <span className="flex items-start gap-1.5">
      <Icon size={14} className={`mt-0.5 shrink-0 ${colour}`} aria-hidden />
      <span>{text}</span>
    </span>
  );
}

/** A group of a topic, and how it does. */
interface GroupRow {
  readonly name: string;
  readonly group: GroupStats;
  readonly verdict: Verdict;
}

function groupList(topic: string): ListOf<GroupRow> {
  const count = (id: "lag" | "in_flight" | "waiting" | "members" | "redelivered", title: string): Column<GroupRow> => ({
    id,
    title,
    value: ({ group }) => group[id],
    cell: ({ group }) => formatNumber(group[id]),
    className: "num whitespace-nowrap",
  });
  return {
    label: `Groups of ${topic}`,
    keyOf: ({ name }) => name,
    mark: ({ name }) => ({ "data-group": name }),
    columns: [
      { id: "group", title: "Group", value: ({ name }) => name, card: "name", cell: ({ name }) => name, className: "font-medium" },
      { id: "state", title: "State", value: ({ verdict }) => verdict.text, card: "line", cell: ({ verdict }) => <Said verdict={verdict} />, className: "min-w-52" },
      count("lag", "Lag"),
      {
        id: "oldest_unacked_seconds",
        title: "Oldest waits",
        value: ({ group }) => group.oldest_unacked_seconds ?? null,
        cell: ({ group: { oldest_unacked_seconds: oldest } }) => (oldest === undefined ? ABSENT : formatSpan(oldest * SECOND)),
        className: "num whitespace-nowrap",
      },
      count("in_flight", "In flight"),
      count("waiting", "To be retried"),
      count("members", "Consumers"),
      count("redelivered", "Delivered again"),
    ],
  };
}

function Groups({ topic: { name: topic, stats } }: { readonly topic: Topic }) {
  const list = useMemo(() => groupList(topic), [topic]);
  const groups = Object.entries(stats.groups).sort(([a], [b]) => a.localeCompare(b));
  if (groups.length === 0) return <p className="border-t border-line px-3.5 py-3 text-[13px] text-muted">Nobody takes from this topic yet; what is published waits for its first group.</p>;
  return (
    <div className="border-t border-line px-3.5 pt-3">
      <List of={list} rows={groups.map(([name, group]) => ({ name, group, verdict: verdictOf(group) }))} />
    </div>
  );
}
