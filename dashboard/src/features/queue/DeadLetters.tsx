import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { RotateCcw, Trash2 } from "lucide-react";
import { useState } from "react";
import { lettersQuery, LETTERS, needsToken, purge, redrive, type DeadLetter, type Replayed, type Selection } from "../../api/queue";
import { formatValue } from "../../shared/format";
import { Failed } from "../../shared/states";
import { formatAge, formatInstant, parseInstant, SECOND, useClock } from "../../shared/time";
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
      <Reasons dead={dead} isAll={from === 0 && next === undefined} />
      <LetterTable
        dead={dead}
        busy={busy}
        onRedrive={(letter) => start(() => redriving.mutate({ id: letter.id }))}
        onPurge={(letter) => start(() => setPurging({ selection: { id: letter.id }, letters: 1, rows: letter.messages_count }))}
      />
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

interface LetterTableProps {
  readonly dead: readonly DeadLetter[];
  readonly busy: boolean;
  readonly onRedrive: (letter: DeadLetter) => void;
  readonly onPurge: (letter: DeadLetter) => void;
}

function LetterTable({ dead, busy, onRedrive, onPurge }: LetterTableProps) {
  const now = useClock(SECOND);
  if (dead.length === 0) return <p className="card p-4 text-[13px] text-muted">No dead letters here.</p>;
  const cell = "px-3 py-2 align-top";
  return (
    <div className="card relative overflow-x-auto" role="region" aria-label="Dead letters" tabIndex={0}>
      <table className="w-full text-[13px]">
        <thead>
          <tr className="border-b border-line text-left text-xs text-muted">
            <th scope="col" className={`${cell} text-right font-medium`}>Rows</th>
            <th scope="col" className={`${cell} font-medium`}>Why</th>
            <th scope="col" className={`${cell} font-medium`}>Group</th>
            <th scope="col" className={`${cell} text-right font-medium`}>Tries</th>
            <th scope="col" className={`${cell} font-medium`}>Published</th>
            <th scope="col" className={`${cell} font-medium`}>Died</th>
            <th scope="col" className={`${cell} font-medium`}>Form</th>
            <th scope="col" className={cell}>
              <span className="sr-only">What to do</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {dead.map((letter) => (
            <tr key={letter.id} className="border-b border-line last:border-0" data-letter={letter.id}>
              <td className={`${cell} num text-right font-medium`}>{letter.messages_count.toLocaleString("en")}</td>
              <td className={`${cell} min-w-56`}>{letter.reason}</td>
              <td className={cell}>{letter.group}</td>
              <td className={`${cell} num text-right`}>{letter.attempts}</td>
              <Instant text={letter.published_at} now={now} />
              <Instant text={letter.died_at} now={now} />
              <td className={`${cell} whitespace-nowrap text-muted`}>
                {letter.content_type === "json" ? "JSON" : "binary rows"}
                {"payload_bytes" in letter && `, ${formatValue(letter.payload_bytes, "B")}`}
              </td>
              <td className={`${cell} whitespace-nowrap`}>
                <button type="button" className="button quiet square" disabled={busy} aria-label={`Redrive letter ${letter.id}`} title="Redrive" onClick={() => onRedrive(letter)}>
                  <RotateCcw size={13} aria-hidden />
                </button>
                <button type="button" className="button quiet square" disabled={busy} aria-label={`Purge letter ${letter.id}`} title="Purge…" onClick={() => onPurge(letter)}>
                  <Trash2 size={13} aria-hidden />
                </button>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Instant({ text, now }: { readonly text: string; readonly now: number }) {
  const instant = parseInstant(text);
  return (
    <td className="num px-3 py-2 align-top whitespace-nowrap" title={text}>
      {instant === null ? text : formatInstant(instant, now)}
      {instant !== null && <span className="block text-xs text-muted">{formatAge(instant, now)}</span>}
    </td>
  );
}
