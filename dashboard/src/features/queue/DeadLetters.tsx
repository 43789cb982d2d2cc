import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { RotateCcw, Trash2 } from "lucide-react";
import { useState } from "react";
import { lettersQuery, LETTERS, needsToken, purge, redrive, type DeadLetter, type Replayed, type Selection } from "../../api/queue";
import { formatValue } from "../../shared/format";
import { Failed } from "../../shared/states";
import { formatAge, formatInstant, parseInstant, SECOND, useClock } from "../../shared/time";
import { List, type ListOf } from "../../parts/columns";
import { WaitingRows } from "../../parts/list";
import { TokenForm } from "../../parts/TokenForm";
import { ConfirmDialog } from "./ConfirmDialog";
import { letters, reasonsOf, rows, type Topic } from "./topics";

interface DeadLettersProps {
  readonly topic: Topic;
  /** The first id that is shown. */
  readonly from: number;
  readonly onTurn: (from: number) => void;
}

interface Purging {
  readonly selection: Selection;
  readonly letters: number;
  readonly rows: number;
}

/** The dead letters of a topic: why they died, and what to do with them. */
export function DeadLetters({ topic, from, onTurn }: DeadLettersProps) {
  const page = useQuery(lettersQuery(topic.name, from));
  const client = useQueryClient();
  const [purging, setPurging] = useState<Purging | null>(null);
  const [said, setSaid] = useState<string | null>(null);
  const again = () => client.invalidateQueries({ queryKey: ["queue"] });
  const redriving = useMutation({
    mutationFn: (selection: Selection) => redrive(topic.name, selection),
    onSuccess: (answer) => setSaid(redriven(answer)),
    onSettled: again,
  });
  const throwing = useMutation({
    mutationFn: ({ selection }: Purging) => purge(topic.name, selection),
    onSuccess: (count) => setSaid(`Purged ${letters(count)}.`),
    onSettled: () => {
      setPurging(null);
      return again();
    },
  });
  const error = redriving.error ?? throwing.error;
  const forget = () => {
    redriving.reset();
    throwing.reset();
  };
  const start = (act: () => void) => {
    forget();
    setSaid(null);
    act();
  };
  if (page.data === undefined) {
    if (page.error !== null && needsToken(page.error)) return <Refused error={page.error} />;
    if (page.error !== null) return <Failed what="The dead letters" error={page.error} retry={() => void page.refetch()} />;
    return <WaitingRows label="Loading dead letters" rows={4} />;
  }
  const { dead, next } = page.data;
  const busy = redriving.isPending || throwing.isPending;
  const isAll = from === 0 && next === undefined;
  const onRedrive = ({ id }: DeadLetter) => start(() => redriving.mutate({ id }));
  const onPurge = ({ id, messages_count: rows }: DeadLetter) => start(() => setPurging({ selection: { id }, letters: 1, rows }));
  const letterRows = dead.map((letter) => ({ letter, busy, onRedrive, onPurge }));
  const all = { selection: { oldest: topic.letters }, letters: topic.letters, rows: topic.deadRows };
  return (
    <div className="space-y-3" data-testid="dead-letters">
      <div className="flex flex-wrap items-center gap-2">
        <p className="mr-auto text-[13px] text-muted">
          {letters(topic.letters)} with {rows(topic.deadRows)}. Redriven, they are published to {topic.name} again, for all of its groups; rows that a group has stored already merge.
        </p>
        <button type="button" className="button" disabled={busy || topic.letters === 0} onClick={() => start(() => redriving.mutate(all.selection))}>
          <RotateCcw size={13} aria-hidden /> {redriving.isPending ? "Redriving…" : `Redrive all ${rows(topic.deadRows)}`}
        </button>
        <button type="button" className="button text-bad" disabled={busy || topic.letters === 0} onClick={() => start(() => setPurging(all))}>
          <Trash2 size={13} aria-hidden /> Purge all…
        </button>
      </div>
      {said !== null && (
        <p role="status" className="text-[13px] text-good">
          {said}
        </p>
      )}
      {error !== null && <Refused error={error} onGiven={forget} />}
      <Reasons dead={dead} isAll={isAll} />
      {/* A file of some of them would look like one of all. */}
      {dead.length === 0 ? <p className="card p-4 text-[13px] text-muted">No dead letters here.</p> : <List of={LETTER_LIST} rows={letterRows} whole={isAll ? letterRows : []} />}
      <div className="flex justify-end gap-2">
        {from > 0 && (
          <button type="button" className="button" onClick={() => onTurn(0)}>
            First {LETTERS}
          </button>
        )}
        {next !== undefined && (
          <button type="button" className="button" onClick={() => onTurn(next)}>
            Next {LETTERS}
          </button>
        )}
      </div>
      {purging !== null && (
        <ConfirmDialog
          title={`Purge ${letters(purging.letters)} of ${topic.name}?`}
          action={`Purge ${rows(purging.rows)}`}
          busy={throwing.isPending}
          onConfirm={() => throwing.mutate(purging)}
          onClose={() => setPurging(null)}
        >
          <p>
            <strong className="text-fg">{rows(purging.rows)}</strong> in {letters(purging.letters)} will be gone for good. Letters that die from now on stay.
          </p>
        </ConfirmDialog>
      )}
    </div>
  );
}

function redriven({ letters: count, without_room, unreadable, left }: Replayed): string {
  const kept = [
    without_room > 0 ? `${letters(without_room)} had no room in the topic` : "",
    unreadable > 0 ? `${letters(unreadable)} cannot be read any more` : "",
    left > 0 ? `${letters(left)} were not tried` : "",
  ].filter((words) => words !== "");
  return `Published ${letters(count)} again${kept.length > 0 ? `; ${kept.join(", ")}` : ""}.`;
}

/** A refusal, with a way to another token where that helps. */
function Refused({ error, onGiven }: { readonly error: Error; readonly onGiven?: () => void }) {
  return (
    <div role="alert" className="card border-warn! px-3.5 py-2.5 text-[13px]">
      {needsToken(error) ? <TokenForm why={`Not allowed: ${error.message}.`} {...(onGiven === undefined ? {} : { onGiven })} /> : error.message}
    </div>
  );
}

function Reasons({ dead, isAll }: { readonly dead: readonly DeadLetter[]; readonly isAll: boolean }) {
  const reasons = reasonsOf(dead);
  if (reasons.length < 2 && isAll) return null;
  return (
    <ul className="space-y-1 text-[13px]" aria-label={isAll ? "Reasons" : "Reasons of the letters below"}>
      {reasons.map(({ reason, letters: count, rows: dying }) => (
        <li key={reason} className="flex flex-wrap gap-x-2">
          <span className="num font-medium">{rows(dying)}</span>
          <span className="text-muted">
            in {letters(count)}: {reason}
          </span>
        </li>
      ))}
    </ul>
  );
}

/** A letter, and what can be done with it. */
interface LetterRow {
  readonly letter: DeadLetter;
  readonly busy: boolean;
  readonly onRedrive: (letter: DeadLetter) => void;
  readonly onPurge: (letter: DeadLetter) => void;
}

const LETTER_LIST: ListOf<LetterRow> = {
  label: "Dead letters",
  keyOf: ({ letter }) => String(letter.id),
  mark: ({ letter }) => ({ "data-letter": letter.id }),
  columns: [
    { id: "rows", title: "Rows", value: ({ letter }) => letter.messages_count, cell: ({ letter }) => letter.messages_count.toLocaleString("en"), className: "num font-medium" },
    { id: "reason", title: "Why", value: ({ letter }) => letter.reason, card: "name", cell: ({ letter }) => letter.reason, className: "min-w-56 font-normal [overflow-wrap:anywhere]" },
    { id: "group", title: "Group", value: ({ letter }) => letter.group, cell: ({ letter }) => letter.group },
    { id: "attempts", title: "Tries", value: ({ letter }) => letter.attempts, cell: ({ letter }) => letter.attempts, className: "num" },
    { id: "published_at", title: "Published", value: ({ letter }) => letter.published_at, cell: ({ letter }) => <Instant text={letter.published_at} />, className: "num whitespace-nowrap" },
    { id: "died_at", title: "Died", value: ({ letter }) => letter.died_at, cell: ({ letter }) => <Instant text={letter.died_at} />, className: "num whitespace-nowrap" },
    { id: "content_type", title: "Form", value: ({ letter }) => letter.content_type, cell: ({ letter }) => formOf(letter), className: "whitespace-nowrap text-muted" },
    { id: "act", title: "What to do", cell: (row) => <Acts row={row} />, className: "whitespace-nowrap" },
  ],
};

function formOf(letter: DeadLetter): string {
  const size = "payload_bytes" in letter ? `, ${formatValue(letter.payload_bytes, "B")}` : "";
  return `${letter.content_type === "json" ? "JSON" : "binary rows"}${size}`;
}

function Acts({ row: { letter, busy, onRedrive, onPurge } }: { readonly row: LetterRow }) {
  return (
    <>
      <button type="button" className="button quiet square" disabled={busy} aria-label={`Redrive letter ${letter.id}`} title="Redrive" onClick={() => onRedrive(letter)}>
        <RotateCcw size={13} aria-hidden />
      </button>
      <button type="button" className="button quiet square" disabled={busy} aria-label={`Purge letter ${letter.id}`} title="Purge…" onClick={() => onPurge(letter)}>
        <Trash2 size={13} aria-hidden />
      </button>
    </>
  );
}

function Instant({ text }: { readonly text: string }) {
  const now = useClock(SECOND);
  const instant = parseInstant(text);
  return (
    <span title={text}>
      {instant === null ? text : formatInstant(instant, now)}
      {instant !== null && <span className="block text-xs text-muted">{formatAge(instant, now)}</span>}
    </span>
  );
}
