import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { BellOff, UserCheck } from "lucide-react";
import { useState } from "react";
import { NOTE_MAX, release, silence, silencesQuery, type Finding, type Silence, type Silenced } from "../../api/findings";
import { useInstant } from "../../shared/instant";
import { formatInstant, MINUTE, parseInstant, SECOND, useNow } from "../../shared/time";
import { SpanSince } from "../gpuLook";
import { endOf, LASTS, LASTS_WORDS, silencedBy, silencedWords, typedAt, untilWords, type Lasts } from "./silenced";

/** That somebody looks after a finding, and the way to say so. */
export function FindingSilence({ finding }: { readonly finding: Finding }) {
  const now = useNow(MINUTE);
  const by = finding.silenced;
  const at = parseInstant(by?.at ?? null);
  if (!by) return <SilenceForm choices={silencedBy(finding)} />;
  return (
    <div className="mt-2 flex flex-wrap items-baseline gap-x-2 text-xs text-muted">
      <UserCheck size={13} aria-hidden className="self-center text-good" />
      <span title={at === null ? undefined : formatInstant(at, now)}>
        {by.type === "finding" ? "Acknowledged" : `Silenced with ${silencedWords(by)}`}
        {at !== null && (
          <>
            {" "}
            <SpanSince at={at} /> ago
          </>
        )}
        {untilWords(by, now)}
        {by.note !== "" && <>: <span className="text-fg">{by.note}</span></>}
      </span>
      <Release silence={by} />
    </div>
  );
}

/** What is silenced, where it is quiet: hosts and jobs, or one host. Nothing where nothing is. */
export function Silences({ host = null }: { readonly host?: string | null }) {
  const now = useNow(MINUTE);
  const { data } = useQuery(silencesQuery());
  const isWanted = ({ type, id }: Silence) => (host === null ? type !== "finding" : type === "host" && (id === host || id.endsWith(`/${host}`)));
  const silences = (data ?? []).filter(isWanted);
  if (silences.length === 0) return null;
  return (
    <div role="note" aria-label="Silences" className="mt-2 flex flex-wrap items-baseline gap-x-3 gap-y-1 text-[13px] text-muted">
      <BellOff size={13} aria-hidden className="self-center" />
      {silences.length} {silences.length === 1 ? "silence" : "silences"}:
      {silences.map((one) => (
        <span key={`${one.type}:${one.id}`}>
          <span className="text-fg">{silencedWords(one)}</span>
          {untilWords(one, now)}
          {one.note !== "" && ` (${one.note})`} <Release silence={one} />
        </span>
      ))}
    </div>
  );
}

/** Takes a silence back; not in a look at the past. */
function Release({ silence: { type, id } }: { readonly silence: Silence }) {
  const isPast = useInstant() !== null;
  const changing = useChange(() => release({ type, id }));
  if (isPast) return null;
  return (
    <>
      <button
        type="button"
        className="rounded underline underline-offset-2 hover:text-fg"
        aria-label={type === "finding" ? undefined : `Release ${silencedWords({ type, id })}`}
        disabled={changing.isPending}
        onClick={() => changing.mutate()}
      >
        Release
      </button>
      <Refused error={changing.error} />
    </>
  );
}

interface SilenceFormProps {
  /** What can be silenced, the nearest first. */
  readonly choices: readonly Silenced[];
}

const OPENING = { finding: "Acknowledge", host: "Silence this host", job: "Silence this job" } as const;
const OPENING_TITLE = "Say that somebody looks after it: it stands behind the others";

/** Says that somebody looks after something, and until when; not in a look at the past. */
export function SilenceForm({ choices }: SilenceFormProps) {
  const [isWriting, setIsWriting] = useState(false);
  const isPast = useInstant() !== null;
  const [first] = choices;
  if (isPast || first === undefined) return null;
  if (isWriting) return <Form choices={choices} first={first} onEnd={() => setIsWriting(false)} />;
  return (
    <div className="mt-2 text-xs">
      <button type="button" className="button" onClick={() => setIsWriting(true)} title={OPENING_TITLE}>
        {first.type === "finding" ? <UserCheck size={13} aria-hidden /> : <BellOff size={13} aria-hidden />} {OPENING[first.type]}
      </button>
    </div>
  );
}

interface FormProps extends SilenceFormProps {
  readonly first: Silenced;
  readonly onEnd: () => void;
}

function Form({ choices, first, onEnd }: FormProps) {
  const now = useNow(SECOND);
  const [type, setType] = useState(first.type);
  const [note, setNote] = useState("");
  const [chosen, setLasts] = useState<Lasts | null>(null);
  const [typed, setTyped] = useState(() => typedAt(now));
  const silenced = choices.find((choice) => choice.type === type) ?? first;
  const isFinding = silenced.type === "finding";
  // Nobody wants a silence of a host or job that is forgotten.
  const lasts = chosen === null || (chosen === "closes" && !isFinding) ? (isFinding ? "closes" : "8h") : chosen;
  const end = endOf(lasts, typed, now);
  const isTimeless = end !== null && !(end > now);
  const changing = useChange(() => silence(silenced, note, end), onEnd);
  return (
    <div className="mt-2 text-xs">
      <form
        aria-label="Who looks after it"
        className="flex flex-wrap gap-2"
        onSubmit={(event) => {
          event.preventDefault();
          if (!isTimeless) changing.mutate();
        }}
        onKeyDown={(event) => {
          if (event.key === "Escape") onEnd();
        }}
      >
        <input
          // The button that opened it asked for it.
          autoFocus
          className="field min-w-0 flex-1 basis-full"
          aria-label="Who looks after it, and why"
          placeholder="Who looks after it, and why"
          maxLength={NOTE_MAX}
          value={note}
          onChange={(event) => setNote(event.target.value)}
        />
        {choices.length > 1 && (
          <select aria-label="What" className="field max-w-full" value={type} onChange={(event) => setType(choices.find((choice) => choice.type === event.target.value)?.type ?? first.type)}>
            {choices.map((choice) => (
              <option key={choice.type} value={choice.type}>
                {choice.type === "finding" ? silencedWords(choice) : `all of ${silencedWords(choice)}`}
              </option>
            ))}
          </select>
        )}
        <select aria-label="Until when" className="field" value={lasts} onChange={(event) => setLasts(LASTS.find((one) => one === event.target.value) ?? null)}>
          {LASTS.filter((one) => isFinding || one !== "closes").map((one) => (
            <option key={one} value={one}>
              {LASTS_WORDS[one]}
            </option>
          ))}
        </select>
        {lasts === "typed" && (
          <input type="datetime-local" aria-label="End" aria-invalid={isTimeless} className={`field num ${isTimeless ? "border-bad!" : ""}`} value={typed} onChange={(event) => setTyped(event.target.value)} />
        )}
        <button type="submit" className="button" disabled={changing.isPending || isTimeless}>
          {isFinding ? "Acknowledge" : "Silence"}
        </button>
        <button type="button" className="button" onClick={onEnd}>
          Cancel
        </button>
      </form>
      <Refused error={changing.error} />
    </div>
  );
}

/** A change of what is silenced. All that shows findings is read again. */
function useChange(change: () => Promise<unknown>, onDone: () => void = () => undefined) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: change,
    onSuccess: onDone,
    onSettled: () => client.invalidateQueries({ queryKey: ["findings"] }),
  });
}

function Refused({ error }: { readonly error: Error | null }) {
  if (error === null) return null;
  return (
    <p role="alert" className="mt-1 text-bad">
      {error.message}
    </p>
  );
}
