import { formatInstant } from "../shared/time";

interface RangeNotesProps {
  /** When the last GPU reported, where ranges end there; null: they end now. */
  readonly endsAt: number | null;
  readonly now: number;
  /** What could not be read; null: everything was. */
  readonly partial: string | null;
}

/** Says of a range what its values do not: that it ends before now, and what it lacks. */
export function RangeNotes({ endsAt, now, partial }: RangeNotesProps) {
  return (
    <>
      {endsAt !== null && (
        <p role="note" aria-label="Age of the data" className="mb-2 text-[13px] text-warn">
          Nothing has reported since {formatInstant(endsAt, now)}. Ranges end there, not now.
        </p>
      )}
      {partial !== null && (
        <p role="note" aria-label="Incomplete" className="mb-2 text-[13px] text-warn">
          Not everything could be read: {partial}
        </p>
      )}
    </>
  );
}
