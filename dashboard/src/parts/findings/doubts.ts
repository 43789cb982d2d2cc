import { formatAge, formatClock, parseInstant, usePresent } from "../../shared/time";

/** Age of a judgement of the fleet from which it may not be true any more: four of them were missed. */
const OLD_JUDGEMENT_MS = 60_000;

/** What is known of an answer that is asked for again and again. */
export interface RenewedAnswer {
  readonly data?: { readonly partial: string | null } | undefined;
  readonly isError: boolean;
  readonly dataUpdatedAt: number;
}

/** Why an answer may not be all, or not be true any more. */
export function answerDoubts({ data, isError, dataUpdatedAt }: RenewedAnswer): string[] {
  if (data === undefined) return [];
  return [
    ...(data.partial === null ? [] : [`Not everything could be read: ${data.partial}.`]),
    ...(isError ? [`Not renewed: as of ${formatClock(dataUpdatedAt)}.`] : []),
  ];
}

interface JudgedAnswer extends RenewedAnswer {
  readonly data?: { readonly judged_at: string; readonly partial: string | null } | undefined;
}

/** Why the findings may not be all, or not be true any more. */
export function useFindingDoubts(answer: JudgedAnswer): string[] {
  const judged = answer.isError ? null : parseInstant(answer.data?.judged_at);
  const old = usePresent((now) => (judged !== null && now - judged > OLD_JUDGEMENT_MS ? `The fleet was last judged ${formatAge(judged, now)}.` : null));
  return [...answerDoubts(answer), ...(old === null ? [] : [old])];
}
