import { useMutation, useQueryClient } from "@tanstack/react-query";
import { UserCheck } from "lucide-react";
import { useState } from "react";
import { acknowledge, NOTE_MAX, release, type Finding } from "../../api/findings";
import { formatInstant, formatSpan, parseInstant } from "../../shared/time";

interface AcknowledgementProps {
  readonly finding: Finding;
  readonly now: number;
}

/** That somebody looks after a finding, and the way to say so. */
export function Acknowledgement({ finding, now }: AcknowledgementProps) {
  const client = useQueryClient();
  const [isWriting, setIsWriting] = useState(false);
  const [note, setNote] = useState("");
  const changing = useMutation({
    mutationFn: (change: () => Promise<unknown>) => change(),
    onSuccess: () => setIsWriting(false),
    onSettled: () => client.invalidateQueries({ queryKey: ["findings"] }),
  });
  const by = finding.acknowledged;
  const at = parseInstant(by?.at ?? null);
  return (
    <div className="mt-2 text-xs">
      {by && (
        <p className="flex flex-wrap items-baseline gap-x-2 text-muted">
          <UserCheck size={13} aria-hidden className="self-center text-good" />
          <span title={at === null ? undefined : formatInstant(at, now)}>
            Acknowledged{at !== null && ` ${formatSpan(now - at)} ago`}
            {by.note !== "" && <>: <span className="text-fg">{by.note}</span></>}
          </span>
          <button type="button" className="rounded underline underline-offset-2 hover:text-fg" disabled={changing.isPending} onClick={() => changing.mutate(() => release(finding.id))}>
            Release
          </button>
        </p>
      )}
      {!by && !isWriting && (
        <button type="button" className="button" onClick={() => setIsWriting(true)} title="Say that somebody looks after it: it stands behind the others until it closes">
          <UserCheck size={13} aria-hidden /> Acknowledge
        </button>
      )}
      {!by && isWriting && (
        <form
          className="flex flex-wrap gap-2"
          onSubmit={(event) => {
            event.preventDefault();
            changing.mutate(() => acknowledge(finding.id, note));
          }}
          onKeyDown={(event) => {
            if (event.key === "Escape") setIsWriting(false);
          }}
        >
          <input
            // The button that opened it asked for it.
            autoFocus
            className="field min-w-0 flex-1"
            aria-label="Who looks after it, and why"
            placeholder="Who looks after it, and why"
            maxLength={NOTE_MAX}
            value={note}
            onChange={(event) => setNote(event.target.value)}
          />
          <button type="submit" className="button" disabled={changing.isPending}>
            {changing.isPending ? "Acknowledging…" : "Acknowledge"}
          </button>
          <button type="button" className="button" onClick={() => setIsWriting(false)}>
            Cancel
          </button>
        </form>
      )}
      {changing.error !== null && (
        <p role="alert" className="mt-1 text-bad">
          {changing.error.message}
        </p>
      )}
    </div>
  );
}
